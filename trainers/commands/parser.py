"""The parser of ``hoptrain fit|validate|test|predict|export``, with errors in one line.

jsonargparse's error messages describe its own types and parsers. This module replaces them by a line with the option, its valid values and the nearest
valid name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import yaml
from jsonargparse import get_loader, set_loader
from pytorch_lightning.cli import LightningArgumentParser

from hoptrain.engine import InputError
from hoptrain.engine.errors import did_you_mean
from hoptrain.engine.files.untrusted_yaml import check_yaml
from hoptrain.trainers.commands import configs

_PLAIN = {bool: "true or false", int: "an integer", float: "a number", str: "a string", NoneType: "null"}
_MANY = {int: "integers", float: "numbers", str: "strings"}
_NO_CLASS = (
    r"Problem with given class_path '(?P<value>[^']+)':\s*(?P<reason>.+?)(?= - |$)",
    r"Expected a path but (?P<value>.+?) either not accessible",
    r"Import path (?P<value>\S+) does not correspond to a subclass",
)
_LINKED = {
    "num_features": "the features of the data set; leave it out",
    "num_classes": "the classes of the data set; leave it out",
    "num_edge_features": "the edge features of the data set; leave it out",
    "image_shape": "the size of the images; leave it out",
    "is_multilabel": "the labels of the data set; leave it out",
    "num_nodes": "the node types of the data set; leave it out",
    "relations": "the relations of the data set; leave it out",
    "seed_type": "the data set; leave it out",
    "num_hops": "the number of hops of the sampler, such as the number of its fanouts; leave it out and change data.sampler",
}
"""Name of a property of the data module that sets a model option -> text for the error that the user cannot set this option."""

_ELSEWHERE = {
    "predict_ids": "hoptrain predict --nodes FILE names the nodes to predict; predict_ids is an attribute of data modules in Python"
}
"""Last part of an option that does not exist -> text for the error that names the option for it."""

_load = get_loader("yaml")


def _checked(text: str) -> Any:
    check_yaml(text)
    return _load(text)


set_loader("yaml", _checked, (yaml.YAMLError,))


class OptionParser(LightningArgumentParser):
    """A parser that raises ``InputError`` for a wrong option or configuration. It accepts no abbreviated options, since these would hide typing errors."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create a ``LightningArgumentParser`` with the same arguments, without abbreviations."""
        super().__init__(*args, **kwargs, allow_abbrev=False)

    def error(self, message: str, ex: Exception | None = None) -> Any:
        """Raise ``InputError`` with a one-line explanation of ``message``."""
        raise InputError(_explain(self, " ".join(message.split()), ex))


def _explain(parser: OptionParser, message: str, error: Exception | None) -> str:
    inner = next((str(cause) for cause in causes(error) if isinstance(cause, InputError)), None)
    key = re.match(r'Parser key "([^"]+)"', message)
    if inner is not None:  # an error about the arguments of a class, whose message already explains it
        if key is not None and (missing := re.match(r"((\S+?),? .*)must be given: name a configuration", inner)):
            inner = f"{missing[1]}must be given: give a value under init_args, or on the command line as --{key[1]}.{missing[2]} VALUE"
        return f"{key[1]}: {inner}" if key and not inner.startswith(key[1]) else inner
    if key is not None:
        return _wrong_value(parser, key[1], message)
    if unknown := re.match(r"unrecognized arguments: (\S+)", message):
        return _unknown(parser, unknown[1].partition("=")[0])
    if unknown := re.search(r"(?:does not accept option|Option) '([^']+)'", message):
        return _unknown(parser, unknown[1])
    if missing := re.match(r"the following arguments are required: (.+)", message):
        names = re.sub(r"\b(fit|validate|test|predict)\.", "", missing[1])
        task = next((action.default for action in _actions(parser) if action.dest == "task"), "nodes")
        example = configs.example_of(task, has_data="dataset" not in names)
        return f"{names} must be given: name a configuration, such as --config {example}, or give each as an option"
    if linked := re.match(r'Linked "([^"]+)" must be given via "([^"]+)"', message):
        return _linked(parser, *linked.groups())
    return f"{message}; 'hoptrain {_command(parser)} --help' lists the options"


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause of its cause, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _command(parser: OptionParser) -> str:
    """Return the subcommand, such as ``fit``. The parser of a class's arguments does not know it, and returns ``COMMAND``."""
    return parser.prog.split()[-1] if parser.prog.startswith("hoptrain ") else "COMMAND"


def _actions(parser: Any) -> Iterator[Any]:
    """Yield the actions of a parser and of its subcommands."""
    for action in parser._actions:
        yield action
        if action.dest == "subcommand":
            for inner in action._name_parser_map.values():
                yield from _actions(inner)


def _wrong_value(parser: OptionParser, key: str, message: str) -> str:
    kind = next((action._typehint for action in _actions(parser) if action.dest == key and hasattr(action, "_typehint")), None)
    if several := re.search(
        r"Multiple subclasses with name (\S+)\. Give the full class path to avoid ambiguity: (.+?)\.(?: - |$)", message
    ):
        return f"{key} is {several[1]}: several classes have this name; give one by its path: {several[2]}"
    for pattern in _NO_CLASS:
        if (found := re.search(pattern, message)) and kind is not None:
            reason = found.groupdict().get("reason")
            if "No module named" in (reason or ""):
                hint = "add the folder of the module to PYTHONPATH, as in 'PYTHONPATH=. hoptrain', since no module is imported from the current folder"
            else:
                known = sorted(set().union(*map(_subclasses, _classes(kind))))
                hint = did_you_mean(found["value"].rpartition(".")[2], known) or "give a class by its path, such as package.module.Class"
            return f"{key} is {found['value']}{f' ({reason})' if reason else ''}: it must be {_words(kind)}; {hint}"
    if nested := re.search(r"NestedArg\(key='([^']+)'", message):
        return f"there is no option {key}.{nested[1]}: {key} must be {_words(kind)}; give the class first, then its options"
    value = re.search(r"(?:Got value|Given value): (.*)$", message)
    if value is None or kind is None:
        return f"{key}: {message.partition(': ')[2]}; 'hoptrain {_command(parser)} --help' describes the option"
    hint = did_you_mean(value[1], [str(choice) for choice in _choices(kind)])
    return f"{key} is {value[1]}: it must be {_words(kind)}{'; ' + hint if hint else ''}"


def _unknown(parser: OptionParser, name: str) -> str:
    """Return the message for an option that does not exist, with the nearest one that does."""
    if name in configs.known():
        return f"{name} is a configuration, not an option: did you mean --config {name}?"
    known = {option.removeprefix("--") for action in _actions(parser) for option in action.option_strings if option.startswith("--")}
    known = {option for option in known if not option.endswith(("help", "+"))}
    hint = _ELSEWHERE.get(name.rpartition(".")[2]) or did_you_mean(name.removeprefix("--"), sorted(known))
    if name.startswith("--"):
        hint = hint.replace("did you mean ", "did you mean --")
    if not hint and _command(parser) == "COMMAND":  # a class has few options, so all of them are listed
        hint = f"the options are {', '.join(sorted(known)) or 'none'}"
    return f"there is no option {name}: " + (hint or f"'hoptrain {_command(parser)} --help' lists the options")


def _linked(parser: OptionParser, target: str, source: str) -> str:
    if any(f"--{source}" in action.option_strings for action in _actions(parser)):
        return f"{target} cannot be given: it is set from {source}; give {source}"
    return f"{target} cannot be given: it is set from {_LINKED.get(source.rpartition('.')[2], source)}"


def _parts(kind: Any) -> Iterator[Any]:
    """Yield the alternatives of a union type, or the type itself."""
    if get_origin(kind) in (Union, UnionType):
        for part in get_args(kind):
            yield from _parts(part)
    else:
        yield kind


def _choices(kind: Any) -> list[Any]:
    return [choice for part in _parts(kind) if get_origin(part) is Literal for choice in get_args(part)]


def _classes(kind: Any) -> Iterator[type]:
    """Yield the classes that a value of this type may name, alone or in a list."""
    for part in _parts(kind):
        for one in (part, *get_args(part)):
            if isinstance(one, type) and one not in _PLAIN and get_origin(one) is None:
                yield one


def _subclasses(cls: type) -> set[str]:
    """Return the names of all imported public subclasses of ``cls``, direct and indirect."""
    subclasses: list[type] = cls.__subclasses__()
    return {sub.__name__ for sub in subclasses if not sub.__name__.startswith("_")}.union(*map(_subclasses, subclasses))


def _words(kind: Any) -> str:
    """Return a description of the values of a type, such as ``an integer or null``."""
    words = [f"one of {', '.join(dict.fromkeys(map(str, choices)))}"] if (choices := _choices(kind)) else []
    words += [_word(part) for part in _parts(kind) if get_origin(part) is not Literal]
    return " or ".join(dict.fromkeys(words))


def _word(part: Any) -> str:
    if part in _PLAIN:
        return _PLAIN[part]
    if get_origin(part) is Callable:
        return "a class or a function"
    if isinstance(part, type) and get_origin(part) is None:
        return f"a {part.__name__}"
    return f"a list of {_inner(part)}"


def _inner(part: Any) -> str:
    """Return a description of the elements of a list type, with their number if it is fixed."""
    of = [kind for kind in get_args(part) if kind is not Ellipsis]
    number = f"{len(of)} " if get_origin(part) is tuple and Ellipsis not in get_args(part) else ""
    return number + " or ".join(dict.fromkeys(map(_plural, chain.from_iterable(map(_parts, of)))))


def _plural(kind: Any) -> str:
    return f"lists of {_inner(kind)}" if get_args(kind) else _MANY.get(kind, getattr(kind, "__name__", str(kind)))
