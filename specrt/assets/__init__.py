"""The embedded tiny model: it comes with the package, so that all runs without a download.

What it is and what it is not for says ``MODEL_CARD.md`` beside it.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

__all__ = ["FAMILY", "TINY", "embedded_model"]

TINY = "tiny"
"""Its name, where a model is asked for."""
FAMILY = "specrt-tiny-py"
"""What its files say in ``general.name``, in every quantisation."""
FILE = "specrt-tiny-py-Q4_K_M.gguf"


def embedded_model() -> Path:
    """The GGUF file of the target, which also holds its NextN block."""
    return Path(str(files(__name__) / FILE))
