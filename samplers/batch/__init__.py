"""Mini-batches and their blocks, their serialisation, and their conversion to torch, PyG and DGL."""
