"""Sampling of the batches of many steps together, hop by hop, if the edges are in files or on other machines; and their transport to workers."""
