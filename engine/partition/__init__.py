"""Partitioned data sets, one partition per machine: assignment of nodes to partitions, files, and exchange of feature rows."""
