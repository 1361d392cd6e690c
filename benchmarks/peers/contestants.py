"""Who can compete, and how each is made from what the command line says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Final

from benchmarks.peers.build import built_server
from benchmarks.peers.engine import Engine, Job, PeerError
from benchmarks.peers.engines.llama_cpp import LlamaCpp, fastest_flash, ngram_types
from benchmarks.peers.engines.openvino import LOOKUP
from benchmarks.peers.worker import PythonEngine
from specrt.bench.timing import machine
from specrt.errors import OptionError
from specrt.options import SpecOptions

OWN: Final = "specrt"
SPECULATIVE: Final = "speculative"


@dataclass(frozen=True, slots=True)
class Choice:
    """What all engines are made of.

    Args:
        model: the file.
        context: positions.
        threads: of the CPU.
        spec: specrt's speculation.
        llama_server: the program; None for the one that ``build`` made.
        llama_types: values of ``--spec-type`` with flags, in addition to llama.cpp's own defaults.
        start_seconds: in which a process has to come up.
    """

    model: Path
    context: int
    threads: int
    spec: SpecOptions
    llama_server: Path | None
    llama_types: Sequence[str]
    start_seconds: float


Make = Callable[[Choice, Iterable[Job], Callable[[str], None]], Engine]


def make_engines(
    names: Sequence[str], choice: Choice, probes: Iterable[Job], say: Callable[[str], None]
) -> list[Engine]:
    """specrt, then those that are named.

    Args:
        probes: prompts by which llama.cpp's settings are chosen.
        say: hears what is found.

    Raises:
        OptionError: no engine has that name.
        PeerError: one is not there.
    """
    unknown = [name for name in names if name not in PEERS]
    if unknown or not names:
        raise OptionError(
            f"--engines {','.join(names)}: expected some of {', '.join(PEERS)} ({OWN} always runs)"
        )
    return [_own(choice), *(PEERS[name](choice, probes, say) for name in dict.fromkeys(names))]


def _own(choice: Choice) -> Engine:
    return replace(
        _python(choice, OWN, "own", str(machine()["specrt"])),
        speculations=(SPECULATIVE,),
        options=asdict(choice.spec),
    )


def _llama_cpp(choice: Choice, probes: Iterable[Job], say: Callable[[str], None]) -> Engine:
    binary = choice.llama_server or built_server()
    if not binary.is_file():
        raise PeerError(f"--llama-server {binary}: no such file")
    engine = LlamaCpp(
        binary=binary,
        model=choice.model,
        context=choice.context,
        threads=choice.threads,
        speculations=tuple(dict.fromkeys((*ngram_types(binary), *choice.llama_types))),
        start_seconds=choice.start_seconds,
    )
    flash, times = fastest_flash(engine, probes)
    for mode, setting in flash:
        found = ", ".join(f"{name} {ms:.3f} ms" for name, ms in times[mode].items())
        say(f"llama.cpp: flash attention {setting} for {mode} ({found})")
    return replace(engine, flash=flash)


def _openvino(choice: Choice, probes: Iterable[Job], say: Callable[[str], None]) -> Engine:
    engine = _python(choice, "openvino", "openvino", _installed("openvino-genai"))
    return replace(engine, speculations=(LOOKUP,))


def _mistral_rs(choice: Choice, probes: Iterable[Job], say: Callable[[str], None]) -> Engine:
    engine = _python(choice, "mistral.rs", "mistral_rs", _installed("mistralrs"))
    return replace(engine, environment={"RAYON_NUM_THREADS": str(choice.threads)})


def _python(choice: Choice, name: str, module: str, version: str) -> PythonEngine:
    return PythonEngine(
        name=name,
        module=f"benchmarks.peers.engines.{module}",
        version=version,
        model=choice.model,
        context=choice.context,
        threads=choice.threads,
        start_seconds=choice.start_seconds,
    )


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        raise PeerError(
            f'{package} is not installed: run `pip install -e ".[peers]"`, or leave it out of '
            "--engines"
        ) from None


PEERS: Final[Mapping[str, Make]] = MappingProxyType(
    {"llama.cpp": _llama_cpp, "openvino": _openvino, "mistral.rs": _mistral_rs}
)
