"""Instruction codes: an instruction is a row of integers, and operands are register numbers."""

# Columns of an instruction. D is an address's offset, or the fourth operand, or a flag. A guard is a register's number plus 1, negative if negated.
OP, WIDTH, SIGNED, DST, A, B, C, D, GUARD, DST_WIDTH, SPACE, COLUMNS = range(12)

(BRA, RET, BAR, LD, ST, WHOLE, ATOM_ADD, ATOM_MIN, ATOM_MAX, ATOM_AND, ATOM_OR, ATOM_XOR, ATOM_EXCH, ATOM_CAS, FENCE) = range(15)
(MOV, CVT, SELP, ADD, SUB, MUL, MUL_WIDE, MUL_HI, MAD, MAD_WIDE, DIV, REM, MIN, MAX, AND, OR, XOR, NOT, NEG, ABS, SHL, SHR, BFI) = range(
    15, 38
)
(SETP_EQ, SETP_NE, SETP_LT, SETP_LE, SETP_GT, SETP_GE, NOT_PRED, CVTA_SHARED) = range(38, 46)
(F_ADD, F_SUB, F_MUL, F_DIV, F_MIN, F_MAX, F_NEG, F_ABS, F_CVT, F_TO_INT) = range(46, 56)
(F_SETP_EQ, F_SETP_NE, F_SETP_LT, F_SETP_LE, F_SETP_GT, F_SETP_GE, F_OF_INT, F_FMA) = range(56, 64)

OPCODES = {name.lower(): number for name, number in list(globals().items()) if name.isupper() and name not in (
    "OP", "WIDTH", "SIGNED", "DST", "A", "B", "C", "D", "GUARD", "DST_WIDTH", "SPACE", "COLUMNS"
)}  # fmt: skip

GLOBAL, SHARED, GENERIC = range(3)
"""Address spaces."""

SPECIAL = ("%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y", "%ntid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z",
           "%nctaid.x", "%nctaid.y", "%nctaid.z", "%dynamic_smem_size", "%laneid")  # fmt: skip
"""Special registers, which have values when a thread starts; a kernel's parameters follow them."""

SHARED_START = 1024
"""First shared address. Smaller addresses are invalid."""
SHARED_WINDOW = 1 << 62
"""Start of shared memory in generic addresses."""
ARGUMENT_BITS = 40
"""Number of offset bits of a global pointer; the bits above are the argument's number, from 1, so overruns are detected."""
