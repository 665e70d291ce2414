"""Test collection for this folder: only ``make test-host-layer`` collects these tests, since they need the emulated device."""

import sys

collect_ignore_glob = [] if "host_layer.played_device" in sys.modules else ["test_*.py"]
