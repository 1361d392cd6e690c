"""One file per GGUF architecture, named after it, and the table of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from specrt.drafters import WIDTH_KEYS
from specrt.errors import MismatchError, UnsupportedError
from specrt.gguf.reader import GGUFFile
from specrt.models.blocks import Trunk
from specrt.models.gemma3 import Gemma3
from specrt.models.llama import Llama
from specrt.models.loader import Loader
from specrt.models.muse_glimmer import MuseGlimmer
from specrt.models.qwen3 import Qwen3
from specrt.models.qwen35 import Qwen35
from specrt.models.qwen35moe import Qwen35Moe
from specrt.ops import Ops

ARCHITECTURES: Final[Mapping[str, type[Trunk]]] = MappingProxyType(
    {
        "gemma3": Gemma3,
        "llama": Llama,
        "muse-glimmer": MuseGlimmer,
        "qwen3": Qwen3,
        "qwen35": Qwen35,
        "qwen35moe": Qwen35Moe,
    }
)


def check_architecture(gguf: GGUFFile) -> None:
    """Check that ``general.architecture`` names a target that runs here.

    Raises:
        UnsupportedError: no such architecture runs.
        MismatchError: the file is a drafter.
    """
    architecture = gguf.architecture
    if architecture in WIDTH_KEYS:
        raise MismatchError(
            f"{gguf.path}: a {architecture} drafter, expected a target: pass it as the draft model"
        )
    if architecture not in ARCHITECTURES:
        raise UnsupportedError(
            f"{gguf.path}: architecture {architecture!r} does not run here; "
            f"expected one of {', '.join(sorted(ARCHITECTURES))}"
        )


def load_trunk(
    gguf: GGUFFile, ops: Ops, context: int, report: Callable[[int], None] | None = None
) -> Trunk:
    """The trunk that ``general.architecture`` names.

    Args:
        gguf: the open file, whose architecture was checked.
        ops: where its weights go.
        context: positions that the rotary tables cover.
        report: hears the bytes of each tensor that is loaded.

    Raises:
        MismatchError: the file lacks a key or tensor.
        FormatError: a value is impossible.
        UnsupportedError: it asks for something that does not run.
    """
    loader = Loader(gguf, ops, report)
    trunk = ARCHITECTURES[gguf.architecture](loader, context)
    loader.finish()
    return trunk
