"""Lossless speculative decoding for GGUF models.

llm = specrt.load("model.gguf")
print(llm.generate("Once upon a time", specrt.SamplingParams(max_tokens=64)).text)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from specrt.errors import SpecrtError
from specrt.options import GovernorOptions, SamplingParams, SpecOptions

if TYPE_CHECKING:
    from specrt.completion import Completion
    from specrt.generate import INHERIT
    from specrt.llm import LLM, load
    from specrt.session import Session
    from specrt.stream import Stream

__all__ = [
    "INHERIT",
    "LLM",
    "Completion",
    "GovernorOptions",
    "SamplingParams",
    "Session",
    "SpecOptions",
    "SpecrtError",
    "Stream",
    "load",
]

# Imported when first used, so that `import specrt` costs nothing.
_HOMES = {
    "INHERIT": "specrt.generate",
    "Completion": "specrt.completion",
    "Stream": "specrt.stream",
    "LLM": "specrt.llm",
    "load": "specrt.llm",
    "Session": "specrt.session",
}


if not TYPE_CHECKING:  # a type checker knows the names from above, and tells others

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'specrt' has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)
