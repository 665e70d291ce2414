"""Node-level tasks: classification and regression of nodes of a homogeneous or a heterogeneous graph."""
