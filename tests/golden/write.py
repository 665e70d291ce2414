"""Writes the golden batches: ``python tests/golden/write.py``. It prints the cases that changed."""

import json

from golden_batches import FILE, digests, read
from golden_feeds import FEEDS, data_folder, of_epochs
from golden_samplers import SAMPLED


def main():
    """Make every batch, and write the file."""
    before = read() if FILE.exists() else {}
    now = {name: digests(make().alone()) for name, make in SAMPLED.items()}
    with data_folder() as folder:
        now |= {f"feed: {name}": digests(of_epochs(make(folder))) for name, make in FEEDS.items()}
    FILE.write_text(json.dumps(now, indent=1) + "\n")
    for word, names in (("new", now.keys() - before.keys()), ("gone", before.keys() - now.keys())):
        print(f"{word}: {'; '.join(sorted(names)) or 'none'}")
    print(f"changed: {'; '.join(name for name in now if before.get(name, now[name]) != now[name]) or 'none'}")


if __name__ == "__main__":
    main()
