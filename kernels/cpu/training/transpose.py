"""The edges of a block grouped by source, by counting sort."""

from hoptrain.kernels.cpu import cpu_kernel


@cpu_kernel
def group_by_source(indptr, indices, by_source, destinations, order):
    """Group a block's edges by source; the edges of a source keep their order.

    Args:
        indptr: offsets (num_dst + 1,) of the destinations' edges.
        indices: sources (M,) of the edges.
        by_source: output, offsets (num_src + 1,) of the sources' edges.
        destinations: output, destinations (M,) of the grouped edges.
        order: output, index (M,) of each grouped edge in the block.
    """
    by_source[:] = 0
    for edge in range(len(indices)):
        by_source[indices[edge] + 1] += 1
    for source in range(len(by_source) - 1):
        by_source[source + 1] += by_source[source]
    cursor = by_source[:-1].copy()
    for destination in range(len(indptr) - 1):
        for edge in range(indptr[destination], indptr[destination + 1]):
            position = cursor[indices[edge]]
            cursor[indices[edge]] = position + 1
            destinations[position] = destination
            order[position] = edge
