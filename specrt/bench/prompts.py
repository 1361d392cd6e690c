"""The fixed prompts, and what a conversation goes on with."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from specrt.assets import FAMILY
from specrt.errors import OptionError
from specrt.generate import Message
from specrt.gguf.reader import open_gguf
from specrt.llm import find_model

FOLLOW_UPS: Final = (
    "Say that again in half as many words.",
    "Now write it out once more, in full, with a title above it.",
    "List the three most important points of your last answer.",
)
"""What turn 2 and the following say, in a circle."""
CHATS: Final = "prompts.json"
SETS: Final = {FAMILY: "prompts_tiny.json"}
"""The prompts of a model family that answers no chat, by the name in its files."""


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


def prompts_for(
    model: str | os.PathLike[str] | None, ids: Sequence[str] | None = None
) -> list[Prompt]:
    """The prompts that go with a model: the embedded family has its own, all others answer chats.

    Args:
        model: as ``specrt.load`` takes it.
        ids: only these.

    Raises:
        OptionError: there is no such model, or no such id in its set.
    """
    with open_gguf(find_model(model)) as gguf:
        name = gguf.metadata.get("general.name")
    return load_prompts(ids, SETS.get(name, CHATS) if isinstance(name, str) else CHATS)


def load_prompts(ids: Sequence[str] | None = None, file: str = CHATS) -> list[Prompt]:
    """All prompts of a set, or those with these ids, in the file's order.

    Raises:
        OptionError: there is no such id.
    """
    text = (files("specrt.bench") / file).read_text(encoding="utf-8")
    known = {
        one["id"]: Prompt(one["id"], one["category"], tuple(one["messages"]))
        for one in json.loads(text)
    }
    unknown = [name for name in ids or () if name not in known]
    if unknown:
        raise OptionError(f"prompts {', '.join(unknown)}: expected some of {', '.join(known)}")
    return [prompt for name, prompt in known.items() if ids is None or name in ids]
