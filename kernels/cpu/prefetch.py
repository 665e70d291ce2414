"""The processor's prefetch instructions, which Numba does not offer.

A processor keeps some dozens of loads in flight if it knows the addresses in advance. It does not if each load depends on the one before, or
after a mispredicted branch on loaded data. With a prefetch, a random read costs the transfer of a cache line instead of its latency.

Use ``prefetch`` for reads a few steps ahead, and ``prefetch_many`` for hundreds of reads at once. The first-level cache has few buffers for lines in flight:
if they are full, an AMD EPYC (Zen 4) stalls and drops some prefetches. Reading 640 random lines of half a gigabyte took 14.1 ns per line with ``prefetch`` and
7.7 ns with ``prefetch_many``. The subgraphs of Cluster-GCN and ShaDow take a third and a quarter longer with ``prefetch_many``.
"""

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic


@intrinsic
def prefetch(typingctx, array, index):
    """Prefetch the cache line of ``array[index]`` into the first-level cache (``prefetcht0``) without waiting for it.

    The index is neither checked against the bounds nor wrapped.
    """
    return types.void(array, types.intp), _ask(locality=3)


@intrinsic
def prefetch_many(typingctx, array, index):
    """Prefetch the cache line of ``array[index]`` into the second-level cache (``prefetcht2``), as one of many."""
    return types.void(array, types.intp), _ask(locality=1)


def _ask(locality):
    """Return the code generator of the instruction; ``locality`` is LLVM's, from 3 for the first-level cache to 0 for none."""

    def codegen(context, builder, signature, arguments):
        array_type = signature.args[0]
        struct = context.make_array(array_type)(context, builder, arguments[0])
        pointer = cgutils.get_item_pointer(context, builder, array_type, struct, [arguments[1]], wraparound=False)
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        function_type = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0")
        builder.call(function, [builder.bitcast(pointer, byte), flag(0), flag(locality), flag(1)])  # prefetch to read, into the data cache
        return context.get_dummy_value()

    return codegen
