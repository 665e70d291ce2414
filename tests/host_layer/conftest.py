"""Collects these tests only under ``make test-host-layer``, since they need the emulated device."""

import sys

collect_ignore_glob = [] if "host_layer.played_device" in sys.modules else ["test_*.py"]
