"""Compilers of CUDA text that need no GPU: NVRTC of its wheel, as CuPy uses it, else nvcc."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from specrt.errors import UnsupportedError
from specrt.kernels._module import OLDEST, OPTIONS

AS_CUPY = (*OPTIONS, "-ftz=true")
"""CuPy adds the last."""

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
"""For which every kernel compiles."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What the assembler says of one kernel on one architecture."""

    registers: int
    stack_bytes: int
    spill_bytes: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """A module for one architecture.

    Args:
        usage: of each entry.
        cubin: the machine code.
    """

    usage: Mapping[str, Usage]
    cubin: bytes


class Compiler(Protocol):
    """NVRTC or nvcc; both raise ``UnsupportedError`` for a text that they refuse."""

    def version(self) -> str:
        """Its name and number."""

    def architectures(self) -> set[int]:
        """Which it compiles for."""

    def compile(self, text: str, architecture: int) -> Compiled:
        """Machine code and what it uses."""

    def ptx(self, text: str, architecture: int = OLDEST) -> str:
        """The text before assembly."""


class Nvcc:
    """NVIDIA's compiler driver."""

    def __init__(self, path: str) -> None:
        self._path = path

    def version(self) -> str:
        """Its name and number."""
        told = re.search(r"release ([\d.]+)", self._run("--version"))
        return f"nvcc {told[1] if told else ''}".rstrip()

    def architectures(self) -> set[int]:
        """Which it compiles for."""
        listed = self._run("--list-gpu-code")
        return {int(number) for number in re.findall(r"sm_(\d+)$", listed, re.M)}

    def compile(self, text: str, architecture: int) -> Compiled:
        """Machine code and what it uses."""
        log, cubin = self._compile(text, "-cubin", "-Xptxas=-v", f"-arch=sm_{architecture}")
        return Compiled(usage(log), cubin)

    def ptx(self, text: str, architecture: int = OLDEST) -> str:
        """The text before assembly."""
        return self._compile(text, "-ptx", f"-arch=compute_{architecture}")[1].decode()

    def _compile(self, text: str, *options: str) -> tuple[str, bytes]:
        with tempfile.TemporaryDirectory() as folder:
            source, result = Path(folder) / "kernel.cu", Path(folder) / "result"
            source.write_text(text)
            options = (*AS_CUPY, "-Werror=all-warnings", *options)
            log = self._run(*options, str(source), "-o", str(result))
            return log, result.read_bytes()

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([self._path, *arguments], capture_output=True, text=True)
        if done.returncode:
            raise UnsupportedError(f"{self._path} fails: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr


class Nvrtc:
    """The compiler as a library."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))

    def version(self) -> str:
        """Its name and number."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return f"NVRTC {major.value}.{minor.value}"

    def architectures(self) -> set[int]:
        """Which it compiles for."""
        number = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(number))
        found = (ctypes.c_int * number.value)()
        self._call("nvrtcGetSupportedArchs", found)
        return set(found)

    def compile(self, text: str, architecture: int) -> Compiled:
        """Machine code and what it uses."""
        log, cubin = self._compile(text, f"sm_{architecture}", "CUBIN", "--ptxas-options=-v")
        return Compiled(usage(log), cubin)

    def ptx(self, text: str, architecture: int = OLDEST) -> str:
        """The text before assembly."""
        return self._compile(text, f"compute_{architecture}", "PTX")[1].rstrip(b"\0").decode()

    def _compile(
        self, text: str, architecture: str, result: str, *options: str
    ) -> tuple[str, bytes]:
        program = ctypes.c_void_p()
        source = ctypes.c_char_p(text.encode())
        self._call("nvrtcCreateProgram", ctypes.byref(program), source, b"kernel.cu", 0, None, None)
        try:
            given = (*AS_CUPY, f"--gpu-architecture={architecture}", *options)
            array = (ctypes.c_char_p * len(given))(*(option.encode() for option in given))
            status = self._library.nvrtcCompileProgram(program, len(given), array)
            log = self._bytes(program, "nvrtcGetProgramLog").rstrip(b"\0").decode()
            if status:
                raise UnsupportedError(f"NVRTC refuses a kernel for {architecture}: {log}")
            return log, self._bytes(program, f"nvrtcGet{result}")
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, program: ctypes.c_void_p, function: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"{function}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(function, program, buffer)
        return buffer.raw

    def _call(self, function: str, *arguments: object) -> None:
        status = getattr(self._library, function)(*arguments)
        if status:
            raise UnsupportedError(f"{function} fails with status {status}")


def find_compiler() -> Compiler | None:
    """NVRTC if its wheel is installed, else nvcc if it is on the path."""
    for path in wheel_files("*/lib/libnvrtc.so.*"):
        return Nvrtc(path)
    found = shutil.which("nvcc")
    return Nvcc(found) if found else None


def find_disassembler() -> str | None:
    """nvdisasm of its wheel, else of the path."""
    for path in wheel_files("*/bin/nvdisasm"):
        return str(path)
    return shutil.which("nvdisasm")


def wheel_files(pattern: str) -> Iterator[Path]:
    """Files of NVIDIA's wheels."""
    spec = importlib.util.find_spec("nvidia")
    for place in (spec and spec.submodule_search_locations) or ():
        yield from sorted(Path(place).glob(pattern))


def usage(log: str) -> dict[str, Usage]:
    """Of each kernel that an assembler's log names."""
    pattern = (
        r"Compiling entry function '(\w+)' for 'sm_\d+'.*?"
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads.*?"
        r"Used (\d+) registers"
    )
    return {
        name: Usage(int(registers), int(stack), int(stores) + int(loads))
        for name, stack, stores, loads, registers in re.findall(pattern, log, re.S)
    }
