"""Build llama-server, natively, from the source that PyPI's llama-cpp-python carries."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.peers.engine import PeerError
from benchmarks.peers.engines.llama_cpp import version
from specrt.bench.arguments import positive
from specrt.host.machine import choose_threads

PACKAGE: Final = "llama-cpp-python"
VERSION: Final = "0.3.36"
EXTRA: Final = 'pip install -e ".[peers]"'

OPTIONS: Final = (
    "CMAKE_BUILD_TYPE=Release",
    "GGML_NATIVE=ON",
    "BUILD_SHARED_LIBS=OFF",
    "LLAMA_BUILD_TESTS=OFF",
    "LLAMA_BUILD_EXAMPLES=OFF",
    "LLAMA_BUILD_UI=OFF",
    "LLAMA_USE_PREBUILT_UI=OFF",
    "LLAMA_CURL=OFF",
    "LLAMA_OPENSSL=OFF",
)
"""All of the machine's instructions, and nothing that a local server does not need."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this command."""
    parser.add_argument(
        "--version", default=VERSION, help=f"of {PACKAGE} (default: {VERSION}, which was tried)"
    )
    parser.add_argument("--jobs", type=positive, metavar="N", help="compilers at a time")
    parser.add_argument(
        "--folder", type=Path, help="where source and build lie (default: SPECRT_PEERS, else "
        "specrt/peers in the user's cache folder)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Fetch, unpack, build, and print the program's path as the last line.

    Raises:
        PeerError: a tool is missing, or a step failed.
    """
    tools = find_tools()
    folder = args.folder or peers_folder()
    source = fetch(folder, args.version)
    jobs = args.jobs or choose_threads(None)
    server = build(tools, source, folder / f"build-{args.version}", jobs)
    print(f"{version(server)}\n{server}")
    return 0


def peers_folder() -> Path:
    """``SPECRT_PEERS``, else ``specrt/peers`` in the user's cache folder (XDG)."""
    if folder := os.environ.get("SPECRT_PEERS"):
        return Path(folder).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "specrt" / "peers"


def built_server() -> Path:
    """The program that ``build`` made, by its defaults.

    Raises:
        PeerError: it was not built.
    """
    server = peers_folder() / f"build-{VERSION}" / "bin" / "llama-server"
    if not server.is_file():
        raise PeerError(
            f"llama-server is not built: run `{EXTRA}` and `python -m benchmarks.peers build` "
            f"(about 10 minutes on two cores; it goes to {server.parent.parent}), or pass "
            "--llama-server FILE"
        )
    return server


def find_tools() -> dict[str, str]:
    """CMake and, where there is one, Ninja; the environment of this Python counts too.

    Raises:
        PeerError: there is no CMake, or no C++ compiler.
    """
    found = {name: _which(name) for name in ("cmake", "ninja")}
    if found["cmake"] is None:
        raise PeerError(f"building llama-server needs CMake: run `{EXTRA}`, which brings it")
    compilers = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    if not any(_which(name.split()[0]) for name in compilers):
        raise PeerError(
            f"building llama-server needs a C++ compiler, and there is no {' or '.join(compilers)}:"
            " install g++ (Debian, Ubuntu: apt-get install g++), or set CXX"
        )
    return {name: path for name, path in found.items() if path is not None}


def fetch(folder: Path, number: str) -> Path:
    """llama.cpp's source, downloaded by pip as it is configured, unless it is there.

    Raises:
        PeerError: pip failed, or the archive holds something else.
    """
    target = folder / f"source-{number}"
    if not target.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as temporary:
            command = [sys.executable, "-m", "pip", "download", "--no-deps"]
            command += ["--no-binary", PACKAGE, "--disable-pip-version-check"]
            _run([*command, "--dest", temporary, f"{PACKAGE}=={number}"], "pip cannot fetch it")
            unpacked = _unpack(Path(temporary), number)
            os.replace(unpacked, target)
    return target / "vendor" / "llama.cpp"


def build(tools: Mapping[str, str], source: Path, folder: Path, jobs: int) -> Path:
    """Configure and compile; what an earlier call has compiled is not compiled again.

    Raises:
        PeerError: CMake or the compiler failed.
    """
    generator = (
        ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools['ninja']}"] if "ninja" in tools else []
    )
    # Else llama.cpp takes the commit of whatever repository its source happens to lie in.
    version = ("LLAMA_BUILD_NUMBER=0", f"LLAMA_BUILD_COMMIT={PACKAGE}-{source.parents[1].name}")
    options = [f"-D{option}" for option in (*OPTIONS, *version)]
    configure = [tools["cmake"], "-S", str(source), "-B", str(folder), *generator, *options]
    _run(configure, "CMake cannot configure it")
    compile_ = [tools["cmake"], "--build", str(folder), "--target", "llama-server"]
    _run([*compile_, "--parallel", str(jobs)], "it cannot be compiled")
    return folder / "bin" / "llama-server"


def _unpack(folder: Path, number: str) -> Path:
    archives = list(folder.glob("*.tar.gz"))
    if len(archives) != 1:
        raise PeerError(
            f"{PACKAGE} {number}: pip gave {[path.name for path in folder.iterdir()]}: expected "
            "its source as one .tar.gz"
        )
    unpacked = folder / "unpacked"
    with tarfile.open(archives[0]) as archive:
        archive.extractall(unpacked, filter="data")
    (root,) = unpacked.iterdir()
    if not (root / "vendor" / "llama.cpp" / "CMakeLists.txt").is_file():
        raise PeerError(
            f"{archives[0].name} holds no vendor/llama.cpp: expected llama.cpp's source there; "
            f"try --version {VERSION}"
        )
    return root


def _run(command: Sequence[str], failed: str) -> None:
    """Run a tool whose output the user sees."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise PeerError(f"llama-server: {failed}: {error}") from error
    if done.returncode:
        raise PeerError(
            f"llama-server: {failed}: exit status {done.returncode} of `{' '.join(command)}`; its "
            "reason stands above"
        )


def _which(name: str) -> str | None:
    """A program on the path, or beside this Python where a package has put it."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
