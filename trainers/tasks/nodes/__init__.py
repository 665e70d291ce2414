"""Labels of nodes, of a homogeneous or a heterogeneous graph."""
