"""What the CUDA kernels compile to, architecture by architecture; needs no GPU."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from specrt.bench.arguments import add_json, names
from specrt.bench.compilers import ARCHITECTURES, Compiler, find_compiler, find_disassembler
from specrt.bench.machine_code import disassembled, of_ptx
from specrt.bench.op_cases import OPS
from specrt.bench.report import check_writable, collect, save, show
from specrt.bench.timing import machine
from specrt.bench.verify_cases import CHECKS
from specrt.errors import OptionError, UnsupportedError
from specrt.host.machine import choose_threads
from specrt.kernels import KernelOps
from specrt.kernels._module import expand, kernel_folder
from specrt.kernels.emulator import Emulator
from specrt.kernels.program import Launch
from specrt.kernels.weights import FIELDS

TYPES = {"WEIGHT_TYPE": tuple(FIELDS), "KV_TYPE": ("F32", "F16", "Q8_0")}
"""By the macro that a file is compiled with, its values."""


@dataclass(frozen=True, slots=True)
class Module:
    """A file with its macros, as a launch names them."""

    file: str
    defines: tuple[str, ...]

    @property
    def type(self) -> str:
        """The type of weights or of keys and values that it is compiled for, if it is for one."""
        return "".join(define.split()[1] for define in self.defines)

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.file} {self.type}".rstrip()

    @property
    def text(self) -> str:
        """What is compiled."""
        return expand(f"{self.file}.cu", (kernel_folder(),), self.defines)


@dataclass(frozen=True, slots=True)
class Kernel:
    """An entry of a module on one architecture.

    Args:
        shared_bytes: of dynamic shared memory, the most that a case of verify-kernels asks for;
            None if none launches it.
        loads: from global memory, by bits.
        counted_in: "sass" or "ptx".
    """

    architecture: int
    module: str
    entry: str
    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int | None
    loads: Mapping[int, int]
    matrix_products: int
    dot_products: int
    counted_in: str


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this command."""
    known = ",".join(map(str, ARCHITECTURES))
    parser.add_argument("--arch", type=names, metavar="N[,N]", help=f"of {known}; all")
    parser.add_argument("--file", type=names, metavar="F[,F]", help="only these .cu files")
    parser.add_argument("--type", type=names, metavar="T[,T]", help="only these types")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Compile, print a table per architecture, and save.

    Raises:
        OptionError: no such architecture or file.
        UnsupportedError: there is no compiler.
    """
    check_writable(args.json)
    modules = all_modules()
    known = {
        "--arch": [str(a) for a in ARCHITECTURES],
        "--file": list(dict.fromkeys(module.file for module in modules)),
        "--type": list(dict.fromkeys(module.type for module in modules if module.type)),
    }
    for flag, given in (("--arch", args.arch), ("--file", args.file), ("--type", args.type)):
        if unknown := [name for name in given or () if name not in known[flag]]:
            expected = ", ".join(known[flag])
            raise OptionError(f"{flag} {', '.join(unknown)}: expected some of {expected}")
    files, types = args.file or known["--file"], args.type or known["--type"]
    modules = [one for one in modules if one.file in files and (one.type or types[0]) in types]
    architectures = [int(name) for name in args.arch or known["--arch"]]
    compiler = find_compiler()
    if compiler is None:
        raise UnsupportedError("no compiler of CUDA text: install nvidia-cuda-nvrtc, or nvcc")
    kernels, complete = collect(compiled(compiler, modules, architectures))
    for architecture in dict.fromkeys(kernel.architecture for kernel in kernels):
        _show(architecture, [one for one in kernels if one.architecture == architecture])
    content = {
        "bench": "kernels",
        "complete": complete,
        "machine": machine(),
        "settings": {"compiler": compiler.version()},
        "results": kernels,
    }
    save(args.json, content)
    return 0 if complete else 130


def all_modules() -> list[Module]:
    """Every file of the kernels' folder, once per value of the macro that it is compiled with."""
    modules = []
    for path in sorted(kernel_folder().glob("*.cu")):
        text = expand(path.name, (kernel_folder(),))
        defines = [f"{name} {value}" for name in TYPES if name in text for value in TYPES[name]]
        modules += [Module(path.stem, (define,)) for define in defines] or [Module(path.stem, ())]
    return modules


def compiled(
    compiler: Compiler, modules: Sequence[Module], architectures: Sequence[int]
) -> Iterator[Kernel]:
    """Entry after entry, but those that are empty for their module's type."""
    shared = shared_memory()
    known = compiler.architectures()
    work = [(module, a) for a in architectures if a in known for module in modules]
    with ThreadPoolExecutor(choose_threads(None)) as pool:
        for kernels in pool.map(lambda one: _entries(compiler, one[0], one[1], shared), work):
            yield from kernels


def _entries(
    compiler: Compiler, module: Module, architecture: int, shared: Mapping[Any, int]
) -> list[Kernel]:
    text = module.text
    code = compiler.compile(text, architecture)
    disassembler = find_disassembler()
    if disassembler:
        counted, counted_in = disassembled(disassembler, code.cubin), "sass"
    else:
        counted, counted_in = of_ptx(compiler.ptx(text, architecture)), "ptx"
    return [
        Kernel(
            architecture,
            module.name,
            entry,
            usage.registers,
            usage.spill_bytes,
            usage.stack_bytes,
            shared.get((module, entry)),
            dict(sorted(counted[entry].loads.items(), reverse=True)),
            counted[entry].matrix_products,
            counted[entry].dot_products,
            counted_in,
        )
        for entry, usage in sorted(code.usage.items())
        if counted[entry].stores
    ]


class _Noting(Emulator):
    """A device that runs nothing, and notes of each entry the launch with most shared memory."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: dict[tuple[Module, str], Launch] = {}

    def launch(
        self,
        file: str,
        entry: str,
        grid: Sequence[int],
        block: int,
        args: Sequence[Any],
        shared_bytes: int = 0,
        defines: tuple[str, ...] = (),
    ) -> None:
        new = Launch(file, entry, grid, block, args, shared_bytes, defines)
        place = Module(file, defines), entry
        if shared_bytes >= self.launches.setdefault(place, new).shared_bytes:
            self.launches[place] = new


def noted_launches() -> dict[tuple[Module, str], Launch]:
    """Of the cases of verify-kernels that with most shared memory, by module and entry."""
    device = _Noting()
    ops = KernelOps(device)
    for check in CHECKS:
        for case in check.cases:
            OPS[check.op].bind(ops, case).run()
    return device.launches


def shared_memory() -> dict[tuple[Module, str], int]:
    """The most bytes that a case of verify-kernels asks for, by module and entry."""
    return {place: launch.shared_bytes for place, launch in noted_launches().items()}


def _show(architecture: int, kernels: Sequence[Kernel]) -> None:
    counted = "machine code" if kernels[0].counted_in == "sass" else "PTX: may be unrolled further"
    show(
        f"sm_{architecture} (instructions of {counted})",
        (
            "module",
            "entry",
            "registers",
            "spilled",
            "shared",
            "widest load",
            "loads",
            "mma",
            "dp4a",
        ),
        [
            (
                kernel.module,
                kernel.entry,
                str(kernel.registers),
                str(kernel.spill_bytes or ""),
                "" if kernel.shared_bytes is None else str(kernel.shared_bytes),
                str(max(kernel.loads, default="")),
                " ".join(f"{bits}:{number}" for bits, number in kernel.loads.items()),
                str(kernel.matrix_products or ""),
                str(kernel.dot_products or ""),
            )
            for kernel in kernels
        ],
        num_texts=2,
    )
