"""Data sets from CSV or Parquet tables of nodes and edges, or from pandas data frames."""
