"""Acceptance lengths that others measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Drafter = Literal["NextN", "DFlash2"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """One figure.

    Args:
        num_draft: ids of a draft; a verify has one row more.
        tokens: that a verify gives on average, the target's own one among them.
        text: what was generated.
        source: where it was published, and with what.
    """

    drafter: Drafter
    num_draft: int
    tokens: float
    text: str
    source: str


LLAMA_27342 = (
    "llama.cpp PR 27342, comment of 2026-08-21: Qwen3.8-27B BF16, H200, temperature 1, "
    "speed-bench, n-max 7"
)

ACCEPTED: Final = (
    Accepted(
        "NextN", 3, 1728 / (1728 - 1178), "nine short prompts",
        "llama.cpp PR 24340, comment of 2026-06-14: Qwen3.6-27B Q8_0, H800, n-max 3; 1178 of 1728 "
        "tokens were drafts",
    ),
    Accepted("NextN", 7, 2.81, "eleven categories", LLAMA_27342),
    Accepted("DFlash2", 7, 3.15, "questions (their least)", LLAMA_27342),
    Accepted("DFlash2", 7, 3.58, "eleven categories", LLAMA_27342),
    Accepted("DFlash2", 7, 4.07, "retrieval (their most)", LLAMA_27342),
    Accepted(
        "DFlash2", 7, 5.46, "GSM8K",
        "the drafter's model card, as xLLM PR 2279 quotes it (its own run: 5.37, temperature 1)",
    ),
)  # fmt: skip
