"""What a sampler makes: mini-batches and their blocks, and the way of their arrays to torch, PyG and DGL."""
