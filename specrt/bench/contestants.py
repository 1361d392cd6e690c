"""Who drafts side by side: n-grams, each draft head alone, and each behind n-grams."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Final

from specrt.drafters import check_drafter
from specrt.drafters.loading import load_head
from specrt.errors import OptionError
from specrt.gguf.reader import GGUFFile
from specrt.llm import LLM
from specrt.options import MAX_DRAFT, SpecOptions
from specrt.speculative.draft_head import DraftHead
from specrt.speculative.registry import Registry, SpeculatorFactory, default_registry
from specrt.speculative.speculator import Speculator
from specrt.state.messages import Declined

FULL: Final = 7
"""Draft tokens of a whole draft of those who have no block: the verify has eight rows then."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A way of drafting.

    Args:
        name: who drafts, in the order asked.
        num_draft: the most tokens of a draft.
        drafter: the file of its draft head, None if that is the model's, or there is none.
        spec: all of it as an option, with the governor.
    """

    name: str
    num_draft: int
    drafter: str | None
    spec: SpecOptions

    @property
    def fixed(self) -> SpecOptions:
        """Without the governor: all K tokens in every step, as far as the gate lets them."""
        return replace(self.spec, governor=False)

    @property
    def label(self) -> str:
        """Name and K."""
        return f"{self.name} K={self.num_draft}"


@dataclass(frozen=True, slots=True)
class Drafter:
    """A speculator that all contestants share which it is part of.

    Args:
        speculator: named as in options.
        file: of its draft head, None if that is the model's, or there is none.
    """

    speculator: Speculator
    file: str | None = None


def drafters_of(llm: LLM, files: Sequence[GGUFFile]) -> tuple[list[Drafter], list[str]]:
    """N-grams, the model's own draft head if it has one, and the head of every file.

    All heads follow one target, so that the model is in memory once.

    Returns:
        Them, and who declined, as "name: reason".

    Raises:
        SpecrtError: a file is no drafter of this model, or cannot be bound.
    """
    target = llm.target
    (ngram,), _ = default_registry().resolve(SpecOptions(type="ngram"), target)
    found, declined = [Drafter(ngram)], []
    own = load_head(llm.gguf, target.trunk, target)
    if isinstance(own, Declined):
        declined.append(f"{own.name}: {own.reason}")
    elif own is not None:
        found.append(Drafter(_serving(llm, own)))
    for file, rest in zip(files, _rests(llm.path, files), strict=True):
        check_drafter(llm.gguf, file)
        head = load_head(file, target.trunk, target)
        assert head is not None and not isinstance(head, Declined)  # only a model's own head
        speculator = _serving(llm, head)
        speculator.name = f"{speculator.name} {rest}"
        found.append(Drafter(speculator, file.path.name))
    return found, declined


def _serving(llm: LLM, head: DraftHead) -> Speculator:
    """The algorithm for a head."""
    (_, speculator), _ = default_registry().resolve(SpecOptions(), llm.target, lambda: head)
    return speculator


def _rests(model: Path, files: Sequence[GGUFFile]) -> list[str]:
    """What tells the names of files apart: without what all begin with, the model's too.

    Raises:
        OptionError: two are the same.
    """
    stems = [file.path.stem for file in files]
    parts = [re.split(r"(?<=[-_.])", stem) for stem in (*stems, model.stem)]
    shared = len(list(takewhile(lambda same: len(set(same)) == 1, zip(*parts, strict=False))))
    rests = ["".join(part[shared:]) or "".join(part) for part in parts[:-1]]
    rests = [rest.replace(",", ";") for rest in rests]  # a comma would part two names
    if len(set(rests)) < len(rests):
        raise OptionError(
            f"draft models {', '.join(stems)}: expected files of different names, since they stand "
            "side by side under them"
        )
    return rests


def enter(registry: Registry, drafters: Sequence[Drafter]) -> None:
    """Make the names of speculators known, each for the one that is there."""
    for drafter in drafters:
        made = drafter.speculator
        registry.register(SpeculatorFactory(made.name, False, lambda *_, made=made: made))


def contestants_of(
    drafters: Sequence[Drafter], num_drafts: Sequence[int | None], spec: SpecOptions
) -> list[Contestant]:
    """Each drafter alone, then each behind the first, and each of those with every K.

    Args:
        drafters: n-grams first.
        num_drafts: each K, None for a whole draft: what the block has, or ``FULL``.
        spec: all other options.
    """
    ngram, *others = drafters
    chains = [(one,) for one in drafters] + [(ngram, one) for one in others]
    return [made for chain in chains for made in _with_each(chain, num_drafts, spec)]


def _with_each(
    chain: Sequence[Drafter], num_drafts: Sequence[int | None], spec: SpecOptions
) -> Iterator[Contestant]:
    name = ",".join(drafter.speculator.name for drafter in chain)
    most = min(drafter.speculator.max_draft for drafter in chain)
    full = most if most < MAX_DRAFT else FULL
    for num_draft in dict.fromkeys(min(most, asked or full) for asked in num_drafts):
        asked = replace(spec, type=name, num_draft=num_draft)
        yield Contestant(name, num_draft, chain[-1].file, asked)
