"""Subgraph samplers, whose mini-batch is a subgraph: Cluster-GCN, GraphSAINT, ShaDow and ripple walks."""
