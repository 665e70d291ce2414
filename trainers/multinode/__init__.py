"""Exchange of feature rows between the machines of a run with partitioned features, through collectives of torch.distributed."""
