"""Derived data: precomputed hop features, features for graphs without any, held-out links, metapaths."""
