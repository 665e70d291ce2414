"""Numba functions that other compiled functions link without the wrappers that only Python and C call."""

from numba import types


def linked_bare(make):
    """Return a Numba function that Python can call, and of which other compiled functions link a version without wrappers.

    Numba wraps each function that it compiles for Python and for C, which takes a third of the time. Most functions are only called by others,
    and so are compiled without. Constants in a call count as the types that they have: no version for each constant.

    Args:
        make: returns the dispatcher, given further options of ``njit``.
    """
    function, bare = make(), make(no_cpython_wrapper=True, no_cfunc_wrapper=True)

    def resolve(args, kws):
        return bare.get_call_template([types.unliteral(t) for t in args], {name: types.unliteral(t) for name, t in kws.items()})

    function.get_call_template, function.get_overload = resolve, bare.get_overload
    return function
