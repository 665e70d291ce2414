"""Intended races of the kernels, each with its reason. Any other note of the interpreter fails a test."""

from ptx.launch import BESIDE_ATOMIC, SAME_VALUE

_STALE_KEY = "find_slot: an old key is the empty one, and the atomic compare-and-swap that follows settles it"
_STALE_WORD = (
    "ask_word: an old word of another bulk is settled by the atomic compare-and-swap that follows, an old larger one by the atomic minimum"
)
_STALE_VALUE = "values only fall, so that an old one is a larger one: it costs an atomic minimum and changes nothing"

ALLOWED = {
    ("enter_nodes", "cuda.atomic.min(values, (b, find_slot(keys, b, vertex)), i)", BESIDE_ATOMIC): _STALE_KEY,
    ("insert_edges", "slot = find_slot(keys, b, neighbors[b, e])", BESIDE_ATOMIC): _STALE_KEY,
    ("insert_edges", "if values[b, slot] > known + e:", BESIDE_ATOMIC): _STALE_VALUE,
    ("enter_chosen", "values[b, find_slot(keys, b, candidates[b, j])] = j", BESIDE_ATOMIC): _STALE_KEY,
    ("ask_direct", "if entries[b, vertex] > number:", BESIDE_ATOMIC): _STALE_VALUE,
    ("pagerank_sets", "size = push_all(indptr, indices, seeds[b, i], alpha, threshold, keys, values, members, residue, score, queue, w, buffer)",
     BESIDE_ATOMIC): _STALE_KEY,
    ("pagerank_sets", "size = push_all(indptr, indices, seeds[b, i], alpha, threshold, keys, values, members, residue, score, queue, w, buffer)",
     SAME_VALUE): "push_edges: all threads of a new vertex write the same 0 to residue and score, and a barrier comes before the first addition",
    ("enter_packed", "if ask_word(words, part_bits, b, vertex, start[b] + i, start[b] + span, most_probes) < 0:", BESIDE_ATOMIC): _STALE_WORD,
    ("ask_packed", "slot = ask_word(words, part_bits, b, neighbors[b, e], start[b] + known + e, start[b] + span, most_probes)", BESIDE_ATOMIC): _STALE_WORD,
}  # fmt: skip
"""(kernel, source line of the plain access, kind) -> reason. For an inlined function the line is that of the call.

A plain read racing with an atomic is harmless only because an aligned load of 4 or 8 bytes returns some value that was written.
"""


def is_allowed(note):
    """Return whether a ``launch.Note`` is an intended race."""
    return (note.kernel, note.line, note.kind) in ALLOWED
