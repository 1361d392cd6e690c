"""Compilers of CUDA text that need no GPU: NVRTC of its wheel, as CuPy uses it, else nvcc."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from specrt.kernels._module import OPTIONS

OLDEST = 75
AS_CUPY = (*OPTIONS, "-ftz=true")
"""CuPy adds the last."""


@dataclass(frozen=True)
class Usage:
    """What the assembler says of one kernel on one architecture."""

    registers: int
    stack_bytes: int
    spill_bytes: int


class Nvcc:
    """NVIDIA's compiler driver."""

    def __init__(self, path: str) -> None:
        self._path = path

    def architectures(self) -> set[int]:
        """Which it compiles for."""
        listed = self._run("--list-gpu-code")
        return {int(number) for number in re.findall(r"sm_(\d+)$", listed, re.M)}

    def cubins(self, text: str, architectures: list[int], folder: Path) -> str:
        """The assembler's words."""
        codes = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in architectures]
        return self._compile(text, folder, "-fatbin", "-Xptxas=-v", *codes)[0]

    def ptx(self, text: str, folder: Path, architecture: int = OLDEST) -> str:
        """The text before assembly."""
        return self._compile(text, folder, "-ptx", f"-arch=compute_{architecture}")[1]

    def _compile(self, text: str, folder: Path, *options: str) -> tuple[str, str]:
        source, result = folder / "kernel.cu", folder / "result"
        source.write_text(text)
        options = (*AS_CUPY, "-Werror=all-warnings", *options)
        told = self._run(*options, str(source), "-o", str(result))
        return told, result.read_text(errors="ignore")

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([self._path, *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


class Nvrtc:
    """The compiler as a library."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))

    def architectures(self) -> set[int]:
        """Which it compiles for."""
        number = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(number))
        found = (ctypes.c_int * number.value)()
        self._call("nvrtcGetSupportedArchs", found)
        return set(found)

    def cubins(self, text: str, architectures: list[int], folder: Path) -> str:
        """The assembler's words."""
        options = ("--ptxas-options=-v",)
        return "".join(self._compile(text, f"sm_{a}", *options)[0] for a in architectures)

    def ptx(self, text: str, folder: Path, architecture: int = OLDEST) -> str:
        """The text before assembly."""
        return self._compile(text, f"compute_{architecture}")[1]

    def _compile(self, text: str, architecture: str, *options: str) -> tuple[str, str]:
        program = ctypes.c_void_p()
        source = ctypes.c_char_p(text.encode())
        self._call("nvrtcCreateProgram", ctypes.byref(program), source, b"kernel.cu", 0, None, None)
        try:
            given = (*AS_CUPY, f"--gpu-architecture={architecture}", *options)
            array = (ctypes.c_char_p * len(given))(*(option.encode() for option in given))
            status = self._library.nvrtcCompileProgram(program, len(given), array)
            log = self._text(program, "nvrtcGetProgramLog")
            assert status == 0, log
            ptx = "" if architecture.startswith("sm_") else self._text(program, "nvrtcGetPTX")
            return log, ptx
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, function: str) -> str:
        size = ctypes.c_size_t()
        self._call(f"{function}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(function, program, buffer)
        return buffer.value.decode()

    def _call(self, function: str, *arguments: object) -> None:
        status = getattr(self._library, function)(*arguments)
        assert status == 0, (function, status)


def find_compiler() -> Nvcc | Nvrtc | None:
    """NVRTC if its wheel is installed, else nvcc if it is on the path."""
    spec = importlib.util.find_spec("nvidia")
    for place in (spec and spec.submodule_search_locations) or ():
        for path in sorted(Path(place).glob("*/lib/libnvrtc.so.*")):
            return Nvrtc(path)
    path = shutil.which("nvcc")
    return Nvcc(path) if path else None


def usage(log: str) -> dict[tuple[str, int], Usage]:
    """Of each kernel and architecture that an assembler's log names."""
    pattern = (
        r"Compiling entry function '(\w+)' for 'sm_(\d+)'.*?"
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads.*?"
        r"Used (\d+) registers"
    )
    return {
        (name, int(architecture)): Usage(int(registers), int(stack), int(stores) + int(loads))
        for name, architecture, stack, stores, loads, registers in re.findall(pattern, log, re.S)
    }
