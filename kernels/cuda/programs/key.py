"""Cache keys of users' functions: a text of everything that a function is compiled from. Equal texts give equal machine code in any process.

The text contains byte code and constants and, recursively, everything that the code refers to: closure variables, and global numbers, arrays, modules
and compiled functions, since Numba compiles their values in. Functions of libraries and of hoptrain are included only by name, because versions and
the name of the cache folder already distinguish them.
"""

import dis
import hashlib
import sys
from types import CodeType, FunctionType, ModuleType

import numba
import numpy as np

_VERSIONS = f"Python {sys.version}, NumPy {np.__version__}, Numba {numba.__version__}"
_KNOWN = ("builtins", "math", "numpy", "numba", "hoptrain.kernels.shared", "hoptrain.kernels.cuda")
"""Modules whose objects a key contains only by name, since they depend only on library versions or on the hash of hoptrain's sources."""
_PLAIN = (type(None), type(...), bool, int, float, complex, str, bytes)


class NoKeyError(Exception):
    """An error that means that a function uses a value for which no key can be computed."""


def text_of(functions):
    """Return the key text of ``functions``.

    Raises:
        NoKeyError: they use a value that has no key, such as a function that is not compiled.
    """
    seen = {}
    return "\n".join([_VERSIONS, *(_function(function, seen) for function in functions)])


def _function(function, seen):
    """Return the text of a compiled function; ``seen`` numbers the functions so far, since functions may call one another in a cycle."""
    options = getattr(function, "targetoptions", {})
    function = getattr(function, "py_func", function)
    if type(function) is not FunctionType or options.get("link"):
        raise NoKeyError(f"{function!r} is not a Python function, or links external code")
    if function in seen:
        return f"function {seen[function]}"
    seen[function] = len(seen)
    code = function.__code__
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError as error:
        raise NoKeyError(f"{function!r} uses a closure variable that has no value yet") from error
    parts = _code(code, function.__globals__, seen), options, function.__defaults__, function.__kwdefaults__, cells
    return f"function({parts[0]}; {', '.join(_value(part, seen) for part in parts[1:])})"


def _code(code, known, seen):
    """Return the text of byte code, including nested functions, and of the values of its global names."""
    shape = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    parts = [code.co_code.hex(), getattr(code, "co_exceptiontable", b"").hex(), repr((shape, names))]
    parts += [_code(const, known, seen) if isinstance(const, CodeType) else _value(const, seen) for const in code.co_consts]
    used = sorted({step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")})
    for name in used:
        if name in known:
            parts.append(f"{name} = {_global(known[name], code.co_names, seen)}")
    return f"code({'; '.join(parts)})"


def _global(value, names, seen):
    """Return the text of a global value. For a module it contains the attributes among ``names``, which include all that the code reads."""
    if not isinstance(value, ModuleType) or _is_known(value.__name__):
        return _value(value, seen)
    found = [(name, getattr(value, name)) for name in sorted(set(names)) if hasattr(value, name)]
    return f"module({', '.join(f'{name} = {_global(attribute, names, seen)}' for name, attribute in found)})"


def _value(value, seen):
    """Return the text of a value that is compiled into the machine code."""
    kind = type(value)
    if kind in _PLAIN:
        return f"{kind.__name__} {value!r}"
    if kind in (tuple, list) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return f"{kind.__name__}{getattr(value, '_fields', '')}({', '.join(_value(item, seen) for item in value)})"
    if kind in (frozenset, dict):
        items = value.items() if kind is dict else value
        return f"{kind.__name__}({', '.join(sorted(_value(item, seen) for item in items))})"
    if isinstance(value, np.generic | np.ndarray) and not value.dtype.hasobject:
        array = np.asarray(value)
        digest = hashlib.sha256(array.tobytes()).hexdigest()
        return f"{kind.__name__}({array.dtype.descr}, {array.shape}, {array.strides}, {digest})"
    if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
        return f"type {value.__name__}{value._fields}({_value(value._field_defaults, seen)})"
    if (name := _known_name(value)) is not None:
        return name
    if hasattr(value, "py_func"):
        return _function(value, seen)
    raise NoKeyError(f"no cache key can be computed for {value!r}: its class is not supported")


def _known_name(value):
    """Return the full name of a value that a known module defines, or None."""
    if isinstance(value, ModuleType):
        return f"module {value.__name__}" if _is_known(value.__name__) else None
    if isinstance(value, np.ufunc):
        module, name = "numpy", value.__name__
    else:
        function = getattr(value, "py_func", value)
        module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    found = getattr(sys.modules.get(module), name, None) if isinstance(module, str) and isinstance(name, str) else None
    return f"{module}.{name}" if found is value and _is_known(module) else None


def _is_known(module):
    return any(module == known or module.startswith(f"{known}.") for known in _KNOWN)
