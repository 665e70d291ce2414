"""Tables that are computed once for a graph and then reused."""

from hoptrain.samplers.buffers.once import OncePerGraph


def test_it_is_recomputed_for_another_graph(graph):
    made = []
    once = OncePerGraph[int]()

    def make(given):
        made.append(given)
        return len(made)

    other = graph.in_memory()
    assert [once.get(of, make) for of in (graph, graph, other, graph)] == [1, 1, 2, 3]
    assert made == [graph, other, graph]
