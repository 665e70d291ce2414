"""Full-batch training: each step uses the whole graph, partitioned across ranks. It is the baseline that sampling is compared with."""
