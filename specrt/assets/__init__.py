"""The embedded tiny model and its drafter: they come with the package, so that all runs offline.

What they are and what they are not for says ``MODEL_CARD.md`` beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Final

__all__ = ["FAMILY", "FILES", "TINY", "TINY_DRAFTER", "embedded_drafter", "embedded_model"]

TINY: Final = "tiny"
"""Its name, where a model is asked for."""
TINY_DRAFTER: Final = "tiny-dflash2"
"""The drafter's, where a draft model is."""
FAMILY: Final = "specrt-tiny-py"
"""What the model's files say in ``general.name``, in every quantisation."""
FILES: Final[Mapping[str, Path]] = MappingProxyType(
    {
        name: Path(str(files(__name__) / file))
        for name, file in (
            (TINY, "specrt-tiny-py-Q4_K_M.gguf"),
            (TINY_DRAFTER, "specrt-tiny-py-dflash2-Q8_0.gguf"),
        )
    }
)
"""By name."""


def embedded_model() -> Path:
    """The GGUF file of the target, which also holds its NextN block."""
    return FILES[TINY]


def embedded_drafter() -> Path:
    """The GGUF file of a DFlash2 drafter that was trained for the embedded model."""
    return FILES[TINY_DRAFTER]
