"""These tests need a played device: ``make test-host-layer`` runs them, other runs do not collect them."""

import sys

collect_ignore_glob = [] if "host_layer.played_device" in sys.modules else ["test_*.py"]
