"""Tables in files, CSV or Parquet: their rows, the nodes that they name, and the data sets that several of them make."""
