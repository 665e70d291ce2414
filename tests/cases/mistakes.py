"""Tables of wrong calls with the expected content of their messages: the value, the rule and the remedy.

A module of tests has one table, a row for each error, and this test::

    @each_of(MISTAKES)
    def test_mistakes(mistake, request):
        mistake.check(request)

A row holds key words instead of the sentence, so that a message can be rephrased without changing a test. `refused` does the same
for an error in the middle of a test, and `warned` for a warning.
"""

import inspect
import re
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from hoptrain.engine import InputError

FOLDER_OF_A_TEST = re.compile(r"\S*/test_\w+\d+/")
"""``tmp_path`` in a message. It contains words of the test's name, which must not match words of the rule.

A word with a slash is searched in the whole message.
"""


@dataclass(frozen=True)
class Mistake:
    """A wrong call and the expected content of its message.

    Args:
        call: The call. Its parameters are names of fixtures, except for those with a default.
        value: The wrong value, or the name of a missing thing, exactly as in the message.
        rule: Words of the broken rule, in any order; a part of a word matches, a part of a number does not.
        remedy: Words of the remedy; empty if the rule itself says what is allowed.
        error: The exception class.
        below: Text in the lines below the first, such as a traceback; without it the message must be one line.
    """

    call: Callable
    value: str
    rule: str
    remedy: str = ""
    error: type[Exception] = InputError
    below: str = ""

    def check(self, request):
        """Make the call with the fixtures that it names, and check its error with `refused`."""
        parameters = inspect.signature(self.call).parameters.values()
        fixtures = {
            parameter.name: request.getfixturevalue(parameter.name) for parameter in parameters if parameter.default is parameter.empty
        }
        with refused(self.value, self.rule, self.remedy, self.error, self.below):
            self.call(**fixtures)


@contextmanager
def refused(value, rule, remedy="", error=InputError, below=""):
    """Check that the block raises ``error`` with one line that contains the value and the words of the rule and the remedy.

    Use it for an error that depends on earlier steps of a test; the arguments are those of ``Mistake``.
    """
    with pytest.raises(error) as raised:
        yield raised
    assert raised.type is error
    message, has_more, rest = str(raised.value).partition("\n")
    assert below in rest
    assert bool(has_more) == bool(below)
    check_line(message, value, rule, remedy)


@contextmanager
def warned(value, rule, remedy="", warning=UserWarning):
    """Check that the block gives one warning, one line as for `refused`."""
    with pytest.warns(warning) as found:
        yield found
    assert len(found) == 1
    check_line(str(found[0].message), value, rule, remedy)


@contextmanager
def exits(code):
    """Check that the block ends the process with an exit code."""
    with pytest.raises(SystemExit) as end:
        yield
    assert end.value.code == code


def check_line(message, value, rule, remedy=""):
    """Check that a message is one line that contains the value and the words of the rule and the remedy."""
    assert "\n" not in message
    assert has(message, value), f"{value} is not in: {message}"
    shortened = FOLDER_OF_A_TEST.sub("", message)
    missing = [word for word in f"{rule} {remedy}".split() if not has((message if "/" in word else shortened).lower(), word.lower())]
    assert not missing, f"{missing} is not in: {message}"


def has(text, word):
    """Return whether a text contains a word or a part of a word; a number must occur as a whole."""
    if not re.fullmatch(r"-?[\d.,]*\d", word):
        return word in text
    return re.search(rf"(?<![\w.-]){re.escape(word)}(?!\w|[.,]\d)", text) is not None


def each_of(mistakes):
    """Return a decorator that runs a test with each ``mistake`` of a dict from descriptions to ``Mistake``."""
    return pytest.mark.parametrize("mistake", mistakes.values(), ids=mistakes)
