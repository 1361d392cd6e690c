"""Kernels as shared libraries of the emulator, compiled once per text."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ...errors import UnsupportedError
from .._module import expand

FLAGS = (
    *("-std=c++17", "-O2", "-shared", "-fPIC"),
    # Every fma is written as one; a device rounds as IEEE 754 says.
    *("-ffp-contract=off", "-fno-math-errno"),
    # A fibre has its own stack, and several texts of one kernel may be loaded.
    *("-fno-exceptions", "-fno-stack-protector", "-fvisibility=hidden", "-fno-gnu-unique"),
    *("-fcf-protection=none", "-Werror=uninitialized"),
)

SANITIZE = ("-fsanitize=thread", "-g1", "-O1")

ENTRY = re.compile(r'extern "C" __global__ void __launch_bounds__\(([^),]+)[^)]*\)\s+(\w+)\(')


def cache_folder() -> Path:
    """``specrt/emulator`` in the user's cache folder (XDG)."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "specrt" / "emulator"


def load_library(
    file: str,
    folder: Path,
    defines: Sequence[str] = (),
    sanitize: bool = False,
    verbose: bool = False,
) -> ctypes.PyDLL:
    """The library of ``<folder>/<file>.cu`` with macros, compiled if it is not in the cache.

    Args:
        sanitize: with the thread sanitiser, whose library is then in the process already.
        verbose: say on stderr what is compiled.

    Raises:
        UnsupportedError: this CPU is not emulated on, there is no C++ compiler, it refuses the
            text, or the cache cannot be written.
    """
    text = emulated_text(file, folder, defines)
    compiler = _compiler()
    flags = (*FLAGS, *SANITIZE) if sanitize else FLAGS
    key = "\0".join((text, *flags, _version(compiler)))
    name = f"{file}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.so"
    path = cache_folder() / name
    try:
        if not path.exists():
            if verbose:
                words = (f"compiling cuda/{file}.cu", *defines, "for the emulator")
                print(" ".join(words), file=sys.stderr)
            _compile((compiler, *flags), text, file, path)
    except OSError as error:
        raise UnsupportedError(
            f"no kernel can be kept in {path.parent} ({error}): set XDG_CACHE_HOME to a folder "
            "that can be written"
        ) from error
    return ctypes.PyDLL(str(path))  # keeps the GIL: a library has one machine


def emulated_text(file: str, folder: Path, defines: Sequence[str] = ()) -> str:
    """A kernel's text over the emulator's ``device.cuh``, and what starts its entries."""
    text = expand(f"{file}.cu", (Path(__file__).parent, folder), defines)
    entries = ENTRY.findall(text)
    if len(entries) != text.count("__global__ void"):
        raise UnsupportedError(
            f"{file}.cu: {text.count('__global__ void')} kernels, {len(entries)} of them as "
            '`extern "C" __global__ void __launch_bounds__(N) name(`; write all so'
        )
    return text + "".join(
        f"SPECRT_ENTRY({name}, ({bounds.split(',')[0]}))\n" for bounds, name in entries
    )


def _compiler() -> str:
    if platform.machine() not in ("x86_64", "AMD64") or sys.platform != "linux":
        raise UnsupportedError(
            f"the emulator runs on x86-64 Linux only; this is {platform.machine()} {sys.platform}"
        )
    compiler = shutil.which(os.environ.get("CXX") or "g++")
    if compiler is None:
        raise UnsupportedError("the emulator needs g++: install it, or set CXX")
    return compiler


@cache
def _version(compiler: str) -> str:
    command = [compiler, "--version"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise UnsupportedError(
            f"{compiler} is no C++ compiler ({error}): install g++, and unset CXX or set it to one"
        ) from error


def _compile(command: Sequence[str], text: str, file: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        source, library = Path(folder) / f"{file}.cpp", Path(folder) / path.name
        source.write_text(text)
        done = subprocess.run(
            [*command, str(source), "-o", str(library)], capture_output=True, text=True
        )
        if done.returncode:
            raise UnsupportedError(f"{command[0]} refuses {file}.cu: {done.stderr.strip()}")
        library.replace(path)  # at once, whoever else compiles the same
