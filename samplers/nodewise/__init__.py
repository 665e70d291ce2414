"""Node-wise samplers, which draw edges for each node by itself: neighbour sampling, LABOR, PinSAGE, temporal and VR-GCN."""
