"""A data set in parts, one for each machine: who owns which node, and the folder that holds the parts."""
