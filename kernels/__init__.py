"""Compute: the lowest floor of hoptrain. NumPy arrays in, NumPy arrays out; nothing here imports torch.

``shared/``  decisions on scalars, written once and compiled for every target
``cpu/``     loops and memory for the CPU
"""
