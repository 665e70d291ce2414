"""Copies that Numba does not offer: a stretch of memory as a whole, and a line past the caches."""

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

LINE_WORDS = 8
"""Words of 64 bits in a cache line."""


@intrinsic
def copy_words(typingctx, array, index, source, position, number):
    """``array[index : index + number] = source[position : position + number]``, both (N,) of one dtype; no bounds check, and they do not overlap.

    The C library's ``memcpy``, which takes the widest registers that the processor has: rows of 400 to 8,000 bytes were gathered in 0.7 to 0.8 of
    the time of a loop over words.
    """

    def codegen(context, builder, signature, arguments):
        def at(of_type, given, place):
            struct = context.make_array(of_type)(context, builder, given)
            return cgutils.get_item_pointer(context, builder, of_type, struct, [place], wraparound=False)

        (to, first, of, second, words), types_of = arguments, signature.args
        size = context.get_abi_sizeof(context.get_data_type(types_of[0].dtype))
        cgutils.raw_memcpy(builder, at(types_of[0], to, first), at(types_of[2], of, second), words, size)
        return context.get_dummy_value()

    return types.void(array, types.intp, source, types.intp, types.intp), codegen


@intrinsic
def store_line(typingctx, array, index, source, position):
    """``array[index : index + 8] = source[position : position + 8]``, not kept in a cache; both (N,) uint64. ``array[index]`` begins a cache line.

    No bounds check. Others see it after ``finish_stores()``. An ordinary store first reads the line that it writes to, and pushes another out. That
    is a third of the traffic of a copy that nobody reads before the caches have forgotten it. A line that is written in pieces costs more: of
    rows that begin and end within lines, those that meet in a line are put beside each other first.
    """

    def codegen(context, builder, signature, arguments):
        def line_at(of_type, given, place):
            struct = context.make_array(of_type)(context, builder, given)
            pointer = cgutils.get_item_pointer(context, builder, of_type, struct, [place], wraparound=False)
            return builder.bitcast(pointer, ir.VectorType(ir.IntType(64), LINE_WORDS).as_pointer())

        line = builder.load(line_at(signature.args[2], arguments[2], arguments[3]))
        line.align = 8
        store = builder.store(line, line_at(signature.args[0], arguments[0], arguments[1]))
        store.align = 8 * LINE_WORDS
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))
        return context.get_dummy_value()

    return types.void(array, types.intp, source, types.intp), codegen


@intrinsic
def finish_stores(typingctx):
    """Such stores of this thread come before whatever it stores afterwards, for all other threads and processes too."""

    def codegen(context, builder, signature, arguments):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen
