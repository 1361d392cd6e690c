"""What is measured, as data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from specrt.errors import OptionError

NUM_TOKENS = 256
NUM_PAIRS = 3

FOLLOW_UPS = (
    "Now write it again, with a short heading.",
    "Which part of it matters most? Quote it.",
    "Write the whole once more, a little shorter.",
)
"""What is said in turn 2 and later, round and round."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A chat that is answered.

    Args:
        id: its name.
        category: prose, factual, edit, summarize, json or code.
        messages: each with ``role`` and ``content``; the last one is the user's.
    """

    id: str
    category: str
    messages: list[dict[str, str]]


def prompts(ids: Iterable[str] = ()) -> list[Prompt]:
    """The fixed prompts, or those of them that are named, in the file's order.

    Raises:
        OptionError: there is no prompt of that name.
    """
    text = files("specrt.bench").joinpath("prompts.json").read_text(encoding="utf-8")
    every = [Prompt(**entry) for entry in json.loads(text)]
    wanted = set(ids)
    unknown = wanted - {prompt.id for prompt in every}
    if unknown:
        known = ", ".join(prompt.id for prompt in every)
        raise OptionError(f"prompts {', '.join(sorted(unknown))}: expected some of {known}")
    return [prompt for prompt in every if not wanted or prompt.id in wanted]


@dataclass(frozen=True, slots=True)
class SamplerCase:
    """One draw.

    Args:
        name: as shown.
        params: fields of ``SamplingParams``.
    """

    name: str
    params: dict[str, Any]


SAMPLER_CASES = (
    SamplerCase("temperature", {"temperature": 0.8}),
    SamplerCase("top-k, top-p", {"temperature": 0.8, "top_k": 40, "top_p": 0.9}),
    SamplerCase("top-p", {"temperature": 0.8, "top_p": 0.9}),
    SamplerCase("penalties", {"temperature": 0.8, "repetition_penalty": 1.1}),
)
VOCABULARIES = (49_152, 262_144)
HISTORIES = (1_000, 100_000, 1_000_000)
NUM_ROWS = (1, 4, 9)
"""Rows of a step: plain, and windows of K = 3 and K = 8."""
