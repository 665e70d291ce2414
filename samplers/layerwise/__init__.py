"""Layer-wise samplers, which draw nodes for all destinations of a layer together: FastGCN, LADIES, AS-GCN and HGT."""
