"""Tables of wrong calls and what the message of each tells: the value, the rule and the remedy.

A module of tests has one table, a row for each error, and this test::

    @each_of(MISTAKES)
    def test_mistakes(mistake, request):
        mistake.check(request)

A row holds key words, not the sentence, so that a message can be written anew without touching a test. `refused` is the same
for an error in the middle of a test.
"""

import inspect
import re
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from hoptrain.engine import InputError

FOLDER_OF_A_TEST = re.compile(r"\S*/test_\w+\d+/")
"""``tmp_path`` in a message: it has words of the test's name, which tell nothing of the rule.

A word with a slash is looked for in the whole message.
"""


@dataclass(frozen=True)
class Mistake:
    """A wrong call and what its message tells.

    Args:
        call: The call. Its parameters are names of fixtures, but for those with a default.
        value: The wrong value or the name of what is missing, letter by letter as the message shows it.
        rule: Words of the rule that it breaks, in any order; a part of a word counts, a part of a number does not.
        remedy: Words of what to do instead; empty where the rule itself says what is allowed.
        error: The class of the error.
    """

    call: Callable
    value: str
    rule: str
    remedy: str = ""
    error: type[Exception] = InputError

    def check(self, request):
        """Make the call with the fixtures it names, and check its error as `refused` does."""
        parameters = inspect.signature(self.call).parameters.values()
        fixtures = {
            parameter.name: request.getfixturevalue(parameter.name) for parameter in parameters if parameter.default is parameter.empty
        }
        with refused(self.value, self.rule, self.remedy, self.error):
            self.call(**fixtures)


@contextmanager
def refused(value, rule, remedy="", error=InputError):
    """Check that the block raises ``error`` with one line that shows the value and has the words of the rule and the remedy.

    For a mistake that needs what a test has made before; the arguments are those of ``Mistake``.
    """
    with pytest.raises(error) as raised:
        yield raised
    assert raised.type is error
    message = str(raised.value)
    assert "\n" not in message
    assert has(message, value), f"{value} is not in: {message}"
    told = FOLDER_OF_A_TEST.sub("", message)
    missing = [word for word in f"{rule} {remedy}".split() if not has((message if "/" in word else told).lower(), word.lower())]
    assert not missing, f"{missing} is not in: {message}"


def has(text, word):
    """Whether a text has a word, or a part of one; a number has to be there as a whole."""
    if not re.fullmatch(r"-?[\d.,]*\d", word):
        return word in text
    return re.search(rf"(?<![\w.-]){re.escape(word)}(?!\w|[.,]\d)", text) is not None


def each_of(mistakes):
    """A decorator: run a test with each ``mistake`` of a dict from what it is to a ``Mistake``."""
    return pytest.mark.parametrize("mistake", mistakes.values(), ids=mistakes)
