"""Connects the machines of a run with partitioned features, through collectives of torch.distributed."""
