"""The examples in the API reference run and print the shown output."""

import doctest
from inspect import unwrap

import pytest

import hoptrain

FINDER = doctest.DocTestFinder()
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE  # for times, and for lines that are too long


@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
@pytest.mark.parametrize("name", hoptrain._HOME)
def test_the_examples_of_a_public_name_run(name):
    examples = FINDER.find(unwrap(getattr(hoptrain, name)), name, module=False, globs={"__name__": "__main__"})
    runner, said = doctest.DocTestRunner(optionflags=FLAGS), []
    results = [runner.run(example, out=said.append) for example in examples]
    assert sum(result.failed for result in results) == 0, "".join(said)
    assert sum(result.attempted for result in results) > 1, f"{name} has no example"
