"""A model whose drafts the test scripts, through the public API alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import specrt
from specrt import SpecOptions
from specrt.completion import Completion
from specrt.llm import LLM
from specrt.speculative.registry import SpeculatorFactory, default_registry
from specrt.state.messages import DraftContext
from tests.fakes import ScriptedSpeculator


def load_scripted(path: Path, **options) -> tuple[LLM, ScriptedSpeculator]:
    """The model, plain unless ``drafting`` is asked for, and the speculator to script."""
    speculator = ScriptedSpeculator(lambda context: [])
    registry = default_registry()
    registry.register(SpeculatorFactory("toy", False, lambda *_: speculator))
    options = {"spec": "none", "verbose": False} | options
    return specrt.load(path, registry=registry, **options), speculator


def drafting(num_draft: int, type: str = "toy") -> SpecOptions:
    """Always drafts of that length."""
    return SpecOptions(type=type, num_draft=num_draft, governor=False)


def continuing(
    plain: Completion, right: Callable[[], int] = lambda: 64, more: tuple[int, ...] = ()
) -> Callable[[DraftContext], list[int]]:
    """Drafts that are plain's continuation and ``more``, for ``right()`` ids; then wrong ones."""
    truth = [*plain.prompt_token_ids, *plain.token_ids, *more]

    def script(context: DraftContext) -> list[int]:
        following = truth[context.sequence.cursor.num_tokens :]
        following += [0] * (context.num_draft - len(following))
        num_right = right()
        return [
            token if k < num_right else (token + 1) % 200
            for k, token in enumerate(following[: context.num_draft])
        ]

    return script


def seeded(seed: int, high: int) -> Callable[[], int]:
    """Numbers from 0 to ``high``."""
    random = np.random.default_rng(seed)
    return lambda: int(random.integers(0, high + 1))
