"""Golden batches: SHA-256 digests of everything in a mini-batch except times, stored in ``batches.json`` by case and address."""

import hashlib
import json
from pathlib import Path

import numpy as np

from hoptrain.samplers import MiniBatch

FILE = Path(__file__).with_name("batches.json")
FACTS = ("seed", "epoch", "batch", "num_seeds", "num_step_seeds", "nested")


def contents(batch):
    """Return everything in a ``MiniBatch`` or ``HeteroMiniBatch`` by name: integers and arrays."""
    facts = FACTS if isinstance(batch, MiniBatch) else FACTS[:4]  # heterogeneous batches had fewer facts when their digests were written
    found = {name: int(getattr(batch, name)) for name in facts} | batch.arrays()
    if isinstance(batch, MiniBatch):
        blocks, rows = enumerate(batch.blocks), {"x": batch.x}
    else:
        blocks = ((f"{hop}.{':'.join(key)}", block) for hop, of in enumerate(batch.blocks) for key, block in of.items())
        rows = {f"x.{name}": own for name, own in batch.x.items()}
    for key, block in blocks:
        found |= {f"num_dst.{key}": block.num_dst, f"num_src.{key}": int(block.num_src), f"num_edges.{key}": block.num_edges}
    return found | {name: own for name, own in (rows | {"y": batch.y}).items() if own is not None}


def digest(named):
    """Return the SHA-256 of integers and arrays with their names, dtypes and shapes, sorted by name."""
    sha = hashlib.sha256()
    for name, value in sorted(named.items()):
        if isinstance(value, int):
            sha.update(f"{name} {value}\n".encode())
        else:
            array = np.ascontiguousarray(value)
            sha.update(f"{name} {array.dtype.str} {array.shape}\n".encode() + array.tobytes())
    return sha.hexdigest()


def digests(all_contents):
    """Return the digests of some batches by address, ``seed/epoch/batch``."""
    return {f"{named['seed']}/{named['epoch']}/{named['batch']}": digest(named) for named in all_contents}


def read():
    """Return the stored digests by case and address."""
    return json.loads(FILE.read_text())


def check(case, found, expected):
    """Raise AssertionError if digests by address differ from the stored ones."""
    other = [address for address in found | expected if found.get(address) != expected.get(address)]
    assert not other, (
        f"{case}: the batch at {other[0]} (seed/epoch/batch) is another than tests/golden/batches.json says: where that is meant, tell it in "
        "CHANGELOG.md under 'Batches change' and write the file anew by 'python tests/golden/write.py'; else find what changed it"
    )
