"""The two layouts of the tables that turn node ids into a batch's own, for tests that batches do not depend on them."""

from contextlib import contextmanager

import pytest

from hoptrain.samplers.buffers import workspace


@contextmanager
def relabelled_by(hashed):
    """Within it workspaces have hash tables, as for graphs of many millions of nodes; else tables with an entry for each node."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workspace, "DIRECT_TABLE_BYTES", 0 if hashed else 1 << 20)
        yield patch
