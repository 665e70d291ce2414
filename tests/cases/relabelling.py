"""Both layouts of the tables that map node ids to local ids, for tests that batches do not depend on the layout."""

from contextlib import contextmanager

import pytest

from hoptrain.samplers.buffers import workspace


@contextmanager
def relabelled_by(hashed):
    """Within this context workspaces use hash tables, as for many millions of nodes, or tables with an entry for each node."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workspace, "DIRECT_TABLE_BYTES", 0 if hashed else 1 << 20)
        yield patch
