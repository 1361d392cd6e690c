"""What a compiled kernel holds: loads by width, products of matrices, dot products."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from specrt.errors import UnsupportedError

SASS_SECTION: Final = re.compile(r"^\.text\.(\w+):$", re.M)
SASS_OPCODE: Final = re.compile(
    r"^(?:(\.L_x_\d+):|\s+/\*[0-9a-f]+\*/\s+(@!?\w+\s+)?([A-Z][\w.]*)"
    r"(?:[^;\n]*`\((\.L_x_\d+)\))?)",
    re.M,
)
"""A label; or an instruction with its predicate, its name, and where it branches to."""
SASS_LOAD: Final = re.compile(r"(?:LDG|LDGSTS|LD)\.")
SASS_WIDTHS: Final = MappingProxyType(
    {"256": 256, "128": 128, "64": 64, "U16": 16, "S16": 16, "U8": 8, "S8": 8}
)

PTX_ENTRY: Final = re.compile(r"\.entry (\w+)\((.*?)^}", re.S | re.M)
PTX_LOAD: Final = re.compile(r"\bld(?:\.global)?(?:\.nc)?(?:\.v(\d))?\.[a-z](\d+)\b")
PTX_ASYNC: Final = re.compile(r"\bcp\.async\.c[ag]\S* .*?, (\d+)[,;]")


@dataclass(frozen=True, slots=True)
class Loop:
    """Instructions that are run again and again.

    Args:
        first, last: their places among all of the entry.
        products: how many of them are products of int8, of matrices or dot products.
    """

    first: int
    last: int
    products: int

    @property
    def count(self) -> int:
        """How many they are."""
        return self.last + 1 - self.first

    def within(self, other: Loop) -> bool:
        """Whether the other one encloses this one."""
        return other.first <= self.first and self.last <= other.last and self != other


@dataclass(frozen=True, slots=True)
class Instructions:
    """Counts, of instructions as they stand in the code.

    Args:
        loads: from global memory, asynchronous copies among them, by their bits.
        matrix_products: of int8, IMMA.
        dot_products: of four int8, IDP.4A.
        stores: to global memory.
        count: of all, but those that fill up behind the end; 0 for text before assembly.
        loops: in the order of their ends; none for text before assembly.
    """

    loads: Mapping[int, int]
    matrix_products: int
    dot_products: int
    stores: int
    count: int = 0
    loops: tuple[Loop, ...] = ()


def disassembled(disassembler: str, cubin: bytes) -> dict[str, Instructions]:
    """Of each entry of a module, from its machine code.

    Raises:
        UnsupportedError: the disassembler does not know the code.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(cubin)
        done = subprocess.run([disassembler, "-c", file.name], capture_output=True, text=True)
    if done.returncode:
        raise UnsupportedError(f"{disassembler} fails: {done.stderr.strip()}")
    _, *parts = SASS_SECTION.split(done.stdout)
    return {name: _of_sass(text) for name, text in zip(parts[::2], parts[1::2], strict=True)}


def _of_sass(text: str) -> Instructions:
    loads: Counter[int] = Counter()
    opcodes: list[str] = []
    labels: dict[str, int] = {}
    back: list[tuple[int, int]] = []
    for label, predicate, opcode, target in SASS_OPCODE.findall(text):
        if label:
            labels[label] = len(opcodes)
            continue
        # Code that was moved behind the end, and goes back from there, makes no loop.
        if opcode == "EXIT" and not predicate:
            labels.clear()
        if opcode == "BRA" and target in labels:
            back.append((labels[target], len(opcodes)))
        opcodes.append(opcode)
    for opcode in opcodes:
        if SASS_LOAD.match(opcode):
            known = [SASS_WIDTHS[part] for part in opcode.split(".") if part in SASS_WIDTHS]
            loads[known[0] if known else 32] += 1
    return Instructions(
        loads,
        sum(map(_is_matrix_product, opcodes)),
        sum(map(_is_dot_product, opcodes)),
        sum(opcode.startswith(("STG.", "ST.", "RED", "ATOMG")) for opcode in opcodes),
        sum(opcode != "NOP" for opcode in opcodes),
        tuple(_loop(opcodes, first, last) for first, last in back),
    )


def _loop(opcodes: list[str], first: int, last: int) -> Loop:
    within = opcodes[first : last + 1]
    products = sum(_is_matrix_product(one) or _is_dot_product(one) for one in within)
    return Loop(first, last, products)


def _is_matrix_product(opcode: str) -> bool:
    return opcode.startswith("IMMA.")


def _is_dot_product(opcode: str) -> bool:
    return opcode.startswith("IDP.4A")


def of_ptx(ptx: str) -> dict[str, Instructions]:
    """Of each entry, from the text before assembly, which may still unroll and merge."""
    found = {}
    for name, text in PTX_ENTRY.findall(ptx):
        loads = Counter(int(n or 1) * int(bits) for n, bits in PTX_LOAD.findall(text))
        loads.update(8 * int(num_bytes) for num_bytes in PTX_ASYNC.findall(text))
        found[name] = Instructions(
            loads,
            len(re.findall(r"\bmma\.sync\S*\.s8\.s8\.", text)),
            len(re.findall(r"\bdp4a\.", text)),
            len(re.findall(r"\b(?:st(?:\.global)?(?:\.v\d)?\.[a-z]\d|atom|red\.)", text)),
        )
    return found
