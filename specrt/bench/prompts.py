"""The fixed prompts, and what a conversation goes on with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from specrt.errors import OptionError
from specrt.generate import Message

FOLLOW_UPS: Final = (
    "Say that again in half as many words.",
    "Now write it out once more, in full, with a title above it.",
    "List the three most important points of your last answer.",
)
"""What turn 2 and the following say, in a circle."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A chat to answer.

    Args:
        id: its name.
        category: prose, factual, edit, summarize, json or code.
        messages: the last one is the user's.
    """

    id: str
    category: str
    messages: tuple[Message, ...]


def load_prompts(ids: Sequence[str] | None = None) -> list[Prompt]:
    """All prompts, or those with these ids, in the file's order.

    Raises:
        OptionError: there is no such id.
    """
    text = (files("specrt.bench") / "prompts.json").read_text(encoding="utf-8")
    known = {
        one["id"]: Prompt(one["id"], one["category"], tuple(one["messages"]))
        for one in json.loads(text)
    }
    unknown = [name for name in ids or () if name not in known]
    if unknown:
        raise OptionError(f"prompts {', '.join(unknown)}: expected some of {', '.join(known)}")
    return [prompt for name, prompt in known.items() if ids is None or name in ids]
