"""The processor's prefetch instruction, which Numba does not offer.

A processor keeps some dozens of loads in flight if it knows the addresses ahead. Where each load waits for the one before, or a branch on loaded
data was guessed wrongly, it does not; asking early gives a random read the cost of a line's transfer, not of its latency.

``prefetch_factor`` is for reads a few steps ahead, ``prefetch_many`` for hundreds at once. The first-level cache has few places for lines on their way: an
AMD EPYC (Zen 4) that is asked for more waits, and drops a part. Reading 640 random lines of half a gigabyte cost 14.1 ns a line by ``prefetch_factor``
and 7.7 ns by ``prefetch_many``; the subgraphs of Cluster-GCN and ShaDow take a third and a quarter longer by ``prefetch_many``.
"""

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic


@intrinsic
def prefetch(typingctx, array, index):
    """``prefetch(array, index)``: ask for the cache line of ``array[index]``, into the first-level cache (``prefetcht0``), and go on.

    No bounds check; an index is not wrapped.
    """
    return types.void(array, types.intp), _ask(locality=3)


@intrinsic
def prefetch_many(typingctx, array, index):
    """``prefetch_factor``, one of many, into the second-level cache (``prefetcht2``)."""
    return types.void(array, types.intp), _ask(locality=1)


def _ask(locality):
    """What writes the instruction down; ``locality`` is LLVM's: 3 for the first-level cache, 0 for none."""

    def codegen(context, builder, signature, arguments):
        array_type = signature.args[0]
        struct = context.make_array(array_type)(context, builder, arguments[0])
        pointer = cgutils.get_item_pointer(context, builder, array_type, struct, [arguments[1]], wraparound=False)
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        function_type = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0")
        builder.call(function, [builder.bitcast(pointer, byte), flag(0), flag(locality), flag(1)])  # to read; data, not instructions
        return context.get_dummy_value()

    return codegen
