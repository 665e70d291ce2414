"""Capacities: the number of rows of the buffers between pipeline stages."""

from hoptrain.trainers.pipeline import Capacities, Chunk


def chunk(*rows):
    return Chunk(rows=rows, inputs=((),) * (len(rows) - 1))


def test_capacities_follow_the_chunks():
    capacities = Capacities([1, 2], bound=100)
    assert capacities.fit([chunk(50, 20, 10, 5), chunk(60, 30, 8, 5)], 2)
    assert capacities.rows == (30, 10)
    assert capacities.waste == 1 - (20 + 10 + 30 + 8) / 80
    assert not capacities.fit([chunk(70, 30, 10, 5)], 2)
    assert capacities.fit([chunk(70, 80, 9, 5)], 2)
    assert capacities.rows == (90, 10)  # 80 plus an eighth
    assert capacities.fit([chunk(99, 98, 9, 5)], 2)
    assert capacities.rows == (100, 10)  # no more than the bound
    assert not capacities.tighten()
    assert not capacities.fit([chunk(70, 16, 8, 5)], 2)
    assert capacities.tighten()
    assert capacities.rows == (18, 9)


def test_equal_chunks_waste_nothing():
    capacities = Capacities([1])
    for _ in range(3):
        capacities.fit([chunk(4, 4, 4)] * 3, 3)
        capacities.tighten()
    assert capacities.waste == 0


def test_chunks_that_fill_up_are_waste():
    capacities = Capacities([1])
    capacities.fit([chunk(4, 4, 4)] * 3, 4)
    assert capacities.waste == 0.25
