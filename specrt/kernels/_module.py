"""Kernels on a CUDA device: found, expanded, compiled when first launched.

This module alone knows CuPy's ``RawModule``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import UnsupportedError

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"\s*$')
OPTIONS = ("--std=c++17", "--fmad=false")
OLDEST = 75
"""The least compute capability, times ten."""


def kernel_folder() -> Path:
    """Where the ``.cu`` files are: ``specrt/cuda`` of an installed wheel, ``cuda`` of a checkout.

    Raises:
        UnsupportedError: neither is there.
    """
    package = Path(__file__).parent.parent
    for folder in (package / "cuda", package.parent / "cuda"):
        if (folder / "common.cuh").is_file():
            return folder
    raise UnsupportedError(
        f"no CUDA kernels in {package / 'cuda'} nor beside {package}: install specrt anew"
    )


def expand(name: str, folders: Sequence[Path], defines: Sequence[str] = ()) -> str:
    """A file's text with our own includes in their places, each once.

    CuPy's cache of compiled kernels goes by this text, not by that of included files.

    Args:
        name: as an include names it.
        folders: where files are looked for, in this order.
        defines: macros, "NAME value" each.

    Raises:
        UnsupportedError: an included file is in none of the folders.
    """
    lines = [f"#define {define}" for define in defines] + _lines(name, folders, set())
    return "\n".join(lines) + "\n"


def _lines(name: str, folders: Sequence[Path], seen: set[str]) -> list[str]:
    if name in seen:
        return []
    seen.add(name)
    found = [folder / name for folder in folders if (folder / name).is_file()]
    if not found:
        raise UnsupportedError(f"{name} is in none of {', '.join(map(str, folders))}")
    lines = [f'#line 1 "{name}"']
    for number, line in enumerate(found[0].read_text().splitlines(), 1):
        if include := INCLUDE.match(line):
            lines += [*_lines(include[1], folders, seen), f'#line {number + 1} "{name}"']
        else:
            lines.append(line)
    return lines


def find_cuda() -> Any:
    """CuPy, where kernels can be compiled and run.

    Raises:
        UnsupportedError: CuPy, a driver with a device that is new enough, or NVRTC is missing.
    """
    # A CuPy that is broken, or built for another NumPy, raises whatever it meets.
    try:
        cupy = import_module("cupy")
    except Exception as error:
        raise UnsupportedError(
            f"CUDA needs CuPy ({error}): install specrt[cuda12] or specrt[cuda13]"
        ) from error
    # CuPy raises errors of its own, and others where a library cannot be opened.
    try:
        devices = cupy.cuda.runtime.getDeviceCount()
        capability = int(cupy.cuda.Device().compute_capability) if devices else 0
    except Exception as error:
        raise UnsupportedError(f"no NVIDIA driver that CuPy can use: {error}") from error
    if capability < OLDEST:
        raise UnsupportedError(
            f"{devices} CUDA devices, the first of compute capability {capability / 10}; "
            f"expected {OLDEST / 10} or newer"
        )
    try:
        cupy.cuda.nvrtc.getVersion()
    except Exception as error:
        raise UnsupportedError(
            f"CuPy finds no NVRTC ({error}): install nvidia-cuda-nvrtc of its CUDA version"
        ) from error
    return cupy


class Kernels:
    """Compiled entries of ``cuda/*.cu``, each file once per set of macros.

    Args:
        cupy: the module.
        verbose: say on stderr what is being compiled.
    """

    def __init__(self, cupy: Any, verbose: bool) -> None:
        self._cupy = cupy
        self._verbose = verbose
        self._modules: dict[tuple[str, tuple[str, ...]], Any] = {}
        self._found: dict[tuple[str, str, tuple[str, ...]], Any] = {}

    def has(self, file: str, entry: str, defines: tuple[str, ...]) -> bool:
        """Whether it was found before."""
        return (file, entry, defines) in self._found

    def find(self, file: str, entry: str, defines: tuple[str, ...]) -> Any:
        """CuPy's kernel; its module is compiled the first time."""
        kernel = self._found.get((file, entry, defines))
        if kernel is None:
            kernel = self._module(file, defines).get_function(entry)
            self._found[file, entry, defines] = kernel
        return kernel

    def _module(self, file: str, defines: tuple[str, ...]) -> Any:
        if (file, defines) not in self._modules:
            if self._verbose:
                print(" ".join((f"compiling cuda/{file}.cu", *defines)), file=sys.stderr)
            text = expand(f"{file}.cu", (kernel_folder(),), defines)
            self._modules[file, defines] = self._cupy.RawModule(code=text, options=OPTIONS)
        return self._modules[file, defines]
