"""The contents of mini-batches, and a comparison of two loaders."""

from hoptrain.samplers.batch.minibatch import dotted, named

FACTS = ("seed", "epoch", "batch", "num_seeds", "num_step_seeds", "nested", "repeats_edges", "seed_type", "seed_relation")


def contents(batch):
    """Return everything in a batch except times and process: arrays as bytes, features, labels, edge features, facts and sizes."""
    arrays = (
        batch.arrays() | {dotted("x", kind): rows for kind, rows in batch.features.items()} | ({} if batch.y is None else {"y": batch.y})
    )
    for h, hop in enumerate(batch.hops):
        arrays |= {f"{named('edge_attr', key)}.{h}": block.edge_attr for key, block in hop.items() if block.edge_attr is not None}
    facts = {name: getattr(batch, name, None) for name in FACTS}
    sizes = batch.num_seeds_by_type(), [{relation: block.num_src for relation, block in hop.items()} for hop in batch.hops]
    return {name: (a.dtype, a.shape, a.tobytes()) for name, a in arrays.items()} | {"facts": facts, "sizes": sizes}


def same(one, other):
    """Check that one epoch of both loaders is the same, and return its number of steps."""
    number = 0
    for ours, theirs in zip(one, other, strict=True):
        assert contents(ours) == contents(theirs)
        number += 1
    return number
