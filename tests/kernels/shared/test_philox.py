import itertools
import random

import numpy as np
import pytest
from reference.neighbor import counter_of
from reference.neighbor import philox4x32 as naive_philox

from hoptrain.kernels.shared import philox
from hoptrain.kernels.shared.philox import four_words, philox4x32

# The known answers published with Random123 (kat_vectors, philox4x32 with 10 rounds): counter, key, result.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def unsigned(values):
    return [np.uint64(value) for value in values]


@pytest.mark.parametrize("function", [philox4x32, philox4x32.py_func], ids=["compiled", "interpreted"])
@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers(function, counter, key, words):
    assert function(*unsigned(counter), *unsigned(key)) == words


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_reference_gives_the_known_answers(counter, key, words):
    assert naive_philox(counter, key) == words


@pytest.mark.parametrize("function", [philox4x32, philox4x32.py_func], ids=["compiled", "interpreted"])
def test_random_inputs_against_the_reference(function):
    source = random.Random(0)
    for _ in range(200):
        inputs = [source.getrandbits(32) for _ in range(6)]
        assert function(*unsigned(inputs)) == naive_philox(inputs[:4], inputs[4:])


FIELDS = {  # the largest value of each field
    "epoch": philox.MAX_EPOCH - 1,
    "batch": philox.MAX_BATCH - 1,
    "hop": (1 << 12) - 1,
    "node": philox.MAX_VERTEX - 1,
    "group": philox.MAX_DRAWS // 4 - 1,
}


def border_addresses():
    """Return every combination of field values at their limits: least, greatest, and around each 32-bit word boundary."""
    borders = {name: {0, 1, largest // 2 + 1, largest} for name, largest in FIELDS.items()}
    borders["node"] |= {(1 << 32) - 1, 1 << 32}
    borders["group"] |= {1 << 8}
    return [dict(zip(FIELDS, values, strict=True)) for values in itertools.product(*(sorted(borders[name]) for name in FIELDS))]


def packed(address, seed=0):
    """Return the counter and key that ``four_words`` passes to Philox."""
    return tuple(int(word) for word in four_words.py_func(np.uint64(seed), *unsigned(address.values())))


def test_addresses_at_field_borders_never_share_a_counter(monkeypatch):
    monkeypatch.setattr(philox, "philox4x32", lambda *words: words)
    addresses = border_addresses()
    counters = {packed(address)[:4] for address in addresses}
    assert len(counters) == len(addresses)
    assert all(word < 1 << 32 for counter in counters for word in counter)


def test_packing_is_the_documented_layout(monkeypatch):
    monkeypatch.setattr(philox, "philox4x32", lambda *words: words)
    seed = 0x0123456789ABCDEF
    for address in border_addresses():
        assert packed(address, seed) == (*counter_of(**address), 0x89ABCDEF, 0x01234567)


def test_compiled_four_words_against_the_reference():
    seed = 0xFEDCBA9876543210
    for address in border_addresses()[::7]:
        expected = naive_philox(counter_of(**address), (seed & 0xFFFFFFFF, seed >> 32))
        assert four_words(np.uint64(seed), *unsigned(address.values())) == expected


def test_the_whole_seed_counts():
    at = unsigned((0, 0, 0, 0, 0))
    seeds = [0, 1, 1 << 31, 1 << 32, 1 << 63, (1 << 64) - 1]
    assert len({four_words(np.uint64(seed), *at) for seed in seeds}) == len(seeds)


def test_reserved_hops_lie_above_the_real_ones():
    reserved = [int(hop) for name, hop in vars(philox).items() if name.startswith("HOP_")]
    assert len(reserved) >= 2
    assert len(set(reserved)) == len(reserved)
    assert all(philox.MAX_HOP <= hop <= FIELDS["hop"] for hop in reserved)
