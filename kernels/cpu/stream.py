"""Stores that go past the caches, which Numba does not offer."""

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic


@intrinsic
def store_past_caches(typingctx, array, index, value):
    """``array[index] = value``, not kept in a cache. No bounds check; an index is not wrapped. Others see it after ``finish_stores()``.

    An ordinary store first reads the line that it writes to, and pushes another out. That is a third of the traffic of a copy that nobody
    reads before the caches have forgotten it. Whole lines should be written without pause: a line begun and left is written in pieces.
    """

    def codegen(context, builder, signature, arguments):
        array_type = signature.args[0]
        struct = context.make_array(array_type)(context, builder, arguments[0])
        pointer = cgutils.get_item_pointer(context, builder, array_type, struct, [arguments[1]], wraparound=False)
        store = builder.store(context.get_value_as_data(builder, array_type.dtype, arguments[2]), pointer)
        store.align = array_type.dtype.bitwidth // 8
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), codegen


@intrinsic
def finish_stores(typingctx):
    """Such stores of this thread come before whatever it stores afterwards, for all other threads and processes too."""

    def codegen(context, builder, signature, arguments):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen
