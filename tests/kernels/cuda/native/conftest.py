"""What the tests of the native kernels share lies here and in the room above."""

import sys
from pathlib import Path

import pytest

sys.path[:0] = map(str, Path(__file__).parents[:2])

from machines import MACHINES  # noqa: E402


@pytest.fixture(params=MACHINES)
def machine(request):
    return MACHINES[request.param]()
