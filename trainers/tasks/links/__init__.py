"""Link prediction on a homogeneous or a heterogeneous graph."""
