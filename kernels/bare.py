"""Numba functions that compile faster, because other compiled functions link a version without the wrappers for Python and C."""

from numba import types


def linked_bare(make):
    """Return a Numba function that Python can call, and whose version without wrappers other compiled functions link.

    Numba compiles wrappers for Python and C with each function, which takes a third of the compile time. Most functions are only called by compiled
    functions and do not need them. Literal arguments are typed as their plain types, so that no version is compiled for each constant.

    Args:
        make: Function that returns the dispatcher, given further options of ``njit``.
    """
    function, bare = make(), make(no_cpython_wrapper=True, no_cfunc_wrapper=True)

    def resolve(args, kws):
        return bare.get_call_template([types.unliteral(t) for t in args], {name: types.unliteral(t) for name, t in kws.items()})

    function.get_call_template, function.get_overload = resolve, bare.get_overload
    return function
