"""A data set in parts, one for each machine: who owns which vertex, and the folder that holds the parts."""
