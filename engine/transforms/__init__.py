"""What is made from a graph and kept: sums over hops, features of graphs that have none, links held out."""
