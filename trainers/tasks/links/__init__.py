"""Links, of a homogeneous or a heterogeneous graph."""
