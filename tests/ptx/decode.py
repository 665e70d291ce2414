"""Decodes the text of a compiled kernel (PTX) into rows of numbers that ``machine`` interprets.

Every operand becomes a register number: literals, parameters, special registers and addresses of shared arrays are registers that are set
when a thread starts. Unknown input raises ``Unsupported``; nothing is skipped silently.
"""

import re
from dataclasses import dataclass

import numpy as np

from ptx.ops import (
    COLUMNS,
    DST,
    DST_WIDTH,
    GENERIC,
    GLOBAL,
    GUARD,
    OP,
    OPCODES,
    SHARED,
    SHARED_START,
    SIGNED,
    SPACE,
    SPECIAL,
    WIDTH,
    A,
    B,
    C,
    D,
)  # fmt: skip


class Unsupported(Exception):
    """PTX contains something that the interpreter does not support."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A decoded kernel.

    Its registers are first the special ones, then parameters, then literals and the kernel's own in order of appearance.
    """

    code: np.ndarray  # (instructions, COLUMNS) int64
    num_registers: int
    params: list  # width of each parameter in bits
    literals: dict  # value -> register
    static_shared: int  # bytes of shared memory that the kernel fixes itself
    dynamic_start: int  # address of those that a launch asks for
    lines: list  # text of each instruction
    places: list  # (file, line) of each instruction


_REGISTER = re.compile(r"%(p|rs|rd|r|fd|f)\d+")
_HIGH_HALF = re.compile(r"\{\s*\.reg\s+\.b(16|32)\s+tmp;\s*mov\.b(?:32|64)\s+\{tmp,\s*(%rs?\d+)\},\s*(%rd?\d+);\s*\}")
"""Statement with which newer NVVM versions extract the upper half of a register."""
_VECTOR = re.compile(r"(\.v[24]\.[^;{}]*)\{([^{}]*)\}")
"""Registers of a vector load or store."""
_VECTOR_ACCESS = re.compile(r"((?:@!?%p\d+ )?)(ld|st)\.(\S*?)\.v([24])\.[a-z](\d+) (?=.*<(.*)>)(?=.*\[([^+\]]*)(?:\+(-?\d+))?\])")
_ADDRESS = re.compile(r"\[\s*(.+?)\s*(?:\+\s*(-?\d+))?\s*\]")
_REGISTER_WIDTHS = {"p": 1, "rs": 16, "r": 32, "rd": 64, "f": 32, "fd": 64}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_WEAKER = ("relaxed", "gpu", "volatile", "weak", "nc", "sys", "cta")  # modifiers of an access without effect in the interpreter


def decode(ptx):
    """Decode a PTX text with one kernel, or raise ``Unsupported``."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", ptx, flags=re.S)
    if re.search(r"\.func\b|\bcall\b|\.local\b", text):
        raise Unsupported("functions that were not inlined, or local memory")
    files = {int(number): path for number, path in re.findall(r'\.file\s+(\d+)\s+"([^"]+)"', text)}
    head = re.search(r"\.entry\s+\S+?\s*\((.*?)\)\s*(?:\.\w+\s+[\d, ]+\s*)*\{", text, re.S)
    body = _HIGH_HALF.sub(r"high.b\1 \2, \3, \1;", text[head.end() : text.rindex("}")])
    body = _VECTOR.sub(r"\1<\2>", body)
    decoder = _Decoder(head[1], text[: head.start()], body)
    rows, lines, places, place = [], [], [], ("", 0)
    for statement in re.split(r"[;\n{}]|(?<=:)(?=\s)", body):
        statement = " ".join(statement.split())
        if match := re.match(r"\.loc\s+(\d+)\s+(\d+)", statement):
            place = files.get(int(match[1]), ""), int(match[2])
        elif statement.endswith(":"):
            decoder.labels[statement[:-1]] = len(rows)
        elif statement and not re.match(r"\.(reg|shared|pragma|extern)\b", statement):
            for part in scalars(statement):
                rows.append(decoder.instruction(part, len(rows)))
                lines.append(statement)
                places.append(place)
    for row, label in decoder.jumps:
        rows[row][A] = decoder.labels[label]
    return Program(
        code=np.array(rows, np.int64), num_registers=len(decoder.registers) + len(decoder.literals), params=decoder.params,
        literals=decoder.literals, static_shared=decoder.static, dynamic_start=decoder.dynamic_start, lines=lines, places=places,
    )  # fmt: skip


def scalars(statement):
    """Split a vector load or store into an alignment check and one access per word; return other statements unchanged."""
    match = _VECTOR_ACCESS.match(statement)
    if not match:
        return [statement]
    guard, head, modifiers, count, width, registers, base, offset = match.groups()
    words, size = [word.strip() for word in registers.split(",")], int(width) // 8
    if base.strip() in words:
        raise Unsupported(f"{statement}: the address is loaded over")
    found = [f"{guard}whole.{modifiers}.b{int(count) * int(width)} [{base}+{offset or 0}]"]
    for number, word in enumerate(words):
        at = f"[{base}+{int(offset or 0) + number * size}]"
        operands = f"{word}, {at}" if head == "ld" else f"{at}, {word}"
        found.append(f"{guard}{head}.{modifiers}.u{width} {operands}")
    return found


def _type(suffix):
    """Return (letter, width) of a type such as s64."""
    if suffix == "pred":
        return "p", 1
    match = re.fullmatch(r"([subf])(8|16|32|64|128)", suffix)
    if not match:
        raise Unsupported(f"type {suffix}")
    return match[1], int(match[2])


class _Decoder:
    """The registers, shared arrays and labels of a kernel."""

    def __init__(self, params, outside, body):
        self.registers = {name: number for number, name in enumerate(SPECIAL)}
        self.literals, self.shared, self.labels, self.jumps, self.params = {}, {}, {}, [], []
        for kind, name in re.findall(r"\.param\s+\.(\w+)\s+(?:\.ptr\s+(?:\.\w+\s+(?:\d+\s+)?)*)?([\w$]+)", params):
            self.params.append(_type(kind)[1])
            self._new(name)
        end = SHARED_START
        for align, size, name, count in re.findall(r"\.shared\s+\.align\s+(\d+)\s+\.b(\d+)\s+([\w$]+)\[(\d+)\]", outside + body):
            self.shared[name] = -(-end // int(align)) * int(align)
            end = self.shared[name] + int(count) * int(size) // 8
        self.static, self.dynamic_start = end - SHARED_START, -(-end // 16) * 16
        for name in re.findall(r"\.extern\s+\.shared\s+\.align\s+\d+\s+\.b\d+\s+([\w$]+)\[\]", outside + body):
            self.shared[name] = self.dynamic_start

    def _new(self, name):
        number = self.registers[name] = len(self.registers) + len(self.literals)
        return number

    def operand(self, text, letter="s", width=64):
        """Return the register of an operand."""
        if text in self.registers:
            return self.registers[text]
        if _REGISTER.fullmatch(text):
            return self._new(text)
        if text in self.shared:
            return self.literal(self.shared[text])
        if match := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})", text):
            return self.literal(int(match[1] or match[2], 16))
        if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)U?", text):
            value = int(text.rstrip("U"), 0)
            return self.literal(int(value != 0) if letter == "p" else value & ((1 << width) - 1))
        raise Unsupported(f"operand {text}")

    def literal(self, value):
        """Return the register of a 64-bit value."""
        value -= (1 << 64) if value >> 63 else 0
        if value not in self.literals:
            self.literals[value] = len(self.registers) + len(self.literals)
        return self.literals[value]

    def address(self, text):
        """Return the register and the offset of an address."""
        match = _ADDRESS.fullmatch(text)
        return self.operand(match[1]), int(match[2] or 0)

    def instruction(self, text, at):
        """Return the row of the ``at``-th instruction."""
        row, plain = [0] * COLUMNS, text
        if match := re.match(r"@(!?)(%p\d+)\s+(.*)", text):
            number = self.operand(match[2]) + 1
            row[GUARD] = -number if match[1] else number
            plain = match[3]
        name, _, rest = plain.partition(" ")
        operands = [part.strip() for part in re.findall(r"\[[^\]]*\]|[^,\[\]]+", rest) if part.strip()]
        try:
            self._fill(row, name.split("."), operands, at)
        except (AttributeError, KeyError, IndexError, ValueError, TypeError) as error:
            raise Unsupported(f"{text}: {error!r}") from error
        return row

    def _fill(self, row, parts, operands, at):
        head = parts[0]
        if head == "bra":
            row[OP] = OPCODES["bra"]
            self.jumps.append((at, operands[0]))
        elif head in ("ret", "exit"):
            row[OP] = OPCODES["ret"]
        elif parts in (["bar", "sync"], ["barrier", "sync"]) and operands == ["0"]:
            row[OP] = OPCODES["bar"]
        elif head in ("membar", "fence"):
            row[OP] = OPCODES["fence"]
        elif head in ("ld", "st", "whole", "atom", "red"):
            self._memory(row, head, [part for part in parts[1:] if part not in _WEAKER], operands)
        elif head == "cvta" and "shared" in parts and "to" not in parts:
            self._compute(row, "cvta_shared", operands, "u", 64)
        elif head == "cvta" and "global" in parts:
            self._compute(row, "mov", operands, "u", 64)
        elif head == "high":
            half = int(parts[1][1:])
            self._compute(row, "shr", operands, "u", 2 * half, to=half, widths=[2 * half, 32])
        elif head == "cvt":
            self._convert(row, parts[1:], operands)
        elif head == "setp" and len(parts) == 3:
            self._compare(row, parts[1], operands, *_type(parts[2]))
        elif head == "rcp" and parts[1:] in (["rn", "f32"], ["rn", "f64"]):
            one = "0f3F800000" if parts[-1] == "f32" else "0d3FF0000000000000"
            self._compute(row, "f_div", [operands[0], one, operands[1]], "u", int(parts[-1][1:]))
        elif parts[-1] in ("f32", "f64") and parts[1:-1] in ([], ["rn"]) and head != "selp":
            self._compute(row, "mov" if head == "mov" else f"f_{head}", operands, "u", int(parts[-1][1:]))
        elif head in ("mul", "mad"):
            letter, width = _type(parts[2])
            wide = width * 2 if parts[1] == "wide" else width
            name = {"lo": head, "wide": f"{head}_wide", "hi": f"{head}_hi"}[parts[1]]
            self._compute(row, name, operands, letter, width, to=wide, widths=[width, width, wide])
        elif len(parts) == 2:
            self._integers(row, head, operands, *_type(parts[1]))
        else:
            raise Unsupported(".".join(parts))

    def _integers(self, row, head, operands, letter, width):
        if letter == "p":
            self._compute(row, "not_pred" if head == "not" else head, operands, "p", 1)
        elif head in ("shl", "shr"):
            self._compute(row, head, operands, letter, width, widths=[width, 32])
        elif head == "bfi":
            self._compute(row, head, operands, letter, width, widths=[width, width, 32, 32])
        elif head in ("mov", "selp", "add", "sub", "div", "rem", "min", "max", "and", "or", "xor", "not", "neg", "abs"):
            self._compute(row, head, operands, letter, width)
        else:
            raise Unsupported(f"{head}.{letter}{width}")

    def _compute(self, row, op, operands, letter, width, *, to=None, widths=None):
        """Return the row of an arithmetic instruction. Operands and result have ``width`` bits, unless ``widths`` and ``to`` differ."""
        row[OP], row[WIDTH], row[SIGNED] = OPCODES[op], width, int(letter == "s")
        row[DST], row[DST_WIDTH] = self.operand(operands[0]), to or width
        for column, text, wide in zip((A, B, C, D), operands[1:], widths or [width] * 4, strict=False):
            row[column] = self.operand(text, "p" if op == "selp" and column == C else letter, wide)

    def _compare(self, row, how, operands, letter, width):
        if letter == "f":  # comparisons with suffix u are true for NaN
            self._compute(row, f"f_setp_{how[:2]}", operands, "u", width, to=1)
            row[D] = int(len(how) == 3)
        else:
            self._compute(row, f"setp_{_UNSIGNED.get(how, how)}", operands, "u" if how in _UNSIGNED else letter, width, to=1)

    def _convert(self, row, parts, operands):
        *how, to_type, from_type = parts
        (to_letter, to), (letter, width) = _type(to_type), _type(from_type)
        kinds = to_letter == "f", letter == "f"
        if kinds == (False, False) and not how:
            if to < width:  # narrowed, then extended to the register by the target's signedness
                letter, width = to_letter, to
            self._compute(row, "cvt", operands, letter, width, to=_REGISTER_WIDTHS[_REGISTER.fullmatch(operands[0])[1]])
        elif kinds == (True, True) and how in ([], ["sat"], ["rn"]):
            self._compute(row, "f_cvt", operands, "u", width, to=to)
            row[D] = int(how == ["sat"])
        elif kinds == (True, False) and how == ["rn"]:
            self._compute(row, "f_of_int", operands, letter, width, to=to)
        elif kinds == (False, True) and how == ["rzi"]:
            self._compute(row, "f_to_int", operands, to_letter, width, to=to)
        else:
            raise Unsupported(f"cvt.{'.'.join(parts)}")

    def _memory(self, row, head, parts, operands):
        if parts[0] == "param":
            self._compute(row, "mov", [operands[0], operands[1].strip("[] ")], *_type(parts[1]))
            return
        row[SPACE] = {"global": GLOBAL, "shared": SHARED}.get(parts[0], GENERIC)
        *what, kind = parts if row[SPACE] == GENERIC else parts[1:]
        letter, width = _type(kind)
        row[WIDTH], row[SIGNED] = width, int(letter == "s")
        if head == "whole":
            row[OP] = OPCODES["whole"]
            row[A], row[D] = self.address(operands[0])
        elif head == "ld" and not what:
            row[OP], row[DST], row[DST_WIDTH] = (
                OPCODES["ld"],
                self.operand(operands[0]),
                _REGISTER_WIDTHS[_REGISTER.fullmatch(operands[0])[1]],
            )
            row[A], row[D] = self.address(operands[1])
        elif head == "st" and not what:
            row[OP] = OPCODES["st"]
            row[A], row[D] = self.address(operands[0])
            row[B] = self.operand(operands[1], letter, width)
        elif head in ("atom", "red") and letter != "f" and len(what) == 1:
            if head == "red":
                operands = ["%rd999999" if width == 64 else "%r999999", *operands]
            row[OP], row[DST], row[DST_WIDTH] = OPCODES[f"atom_{what[0]}"], self.operand(operands[0]), width
            row[A], row[D] = self.address(operands[1])
            for column, text in zip((B, C), operands[2:], strict=False):
                row[column] = self.operand(text, letter, width)
        else:
            raise Unsupported(f"{head}.{'.'.join(parts)}")
