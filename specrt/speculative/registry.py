"""The one place that knows which speculators exist, and which of them serve a target."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from specrt.errors import OptionError
from specrt.options import SpecOptions
from specrt.speculative.algorithms.block import BLOCK, BlockSpeculator
from specrt.speculative.algorithms.draft_head import DraftHeadSpeculator
from specrt.speculative.algorithms.ngram import NgramSpeculator
from specrt.speculative.draft_head import DraftHead
from specrt.speculative.speculator import Speculator
from specrt.speculative.target import Target
from specrt.state.messages import DRAFT_HEAD, Declined, joined_taps

FindHead = Callable[[], DraftHead | Declined | None]
"""The attached draft head, or why it cannot be had; None without one."""


@dataclass(frozen=True, slots=True)
class SpeculatorFactory:
    """How to make one speculator.

    Args:
        name: what ``SpecOptions.type`` calls it.
        requires_draft_head: without one it is declined before any work.
        create: the speculator for this target, or why it cannot serve it. ``num_draft`` and
            ``pmin`` are None here: they come with every ``DraftContext``.
    """

    name: str
    requires_draft_head: bool
    create: Callable[[Target, DraftHead | None, SpecOptions], Speculator | Declined]


class Registry:
    """The known factories, in the order in which an attached draft head is offered to them."""

    def __init__(self) -> None:
        self._factories: dict[str, SpeculatorFactory] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """What ``SpecOptions.type`` may say."""
        return tuple(dict.fromkeys(("auto", "none", *self._factories, DRAFT_HEAD)))

    def register(self, factory: SpeculatorFactory) -> None:
        """Make a factory known.

        Raises:
            OptionError: the name is taken.
        """
        taken = ("auto", "none", *self._factories)
        if factory.name in taken or "," in factory.name:
            raise OptionError(
                f"speculator name {factory.name!r}: expected one without a comma that is not "
                f"among {', '.join(taken)}"
            )
        self._factories[factory.name] = factory

    def resolve(
        self, options: SpecOptions, target: Target, find_head: FindHead = lambda: None
    ) -> tuple[tuple[Speculator, ...], list[Declined]]:
        """The speculators that the options ask for, and who declined with which reason.

        ``auto`` is n-gram, with whoever serves the attached draft head chained behind it. None at
        all means that every step is plain.

        Args:
            options: who is asked for.
            target: the model.
            find_head: its draft head; called only if somebody who was asked for needs one.

        Raises:
            OptionError: an unknown name.
        """

        @cache  # so that an algorithm which two names mean is one speculator
        def make(factory: SpeculatorFactory) -> Speculator | Declined:
            return _made(factory, options, target, find_head)

        heads = [one for one in self._factories.values() if one.requires_draft_head]
        serving = SpeculatorFactory(DRAFT_HEAD, True, lambda *_: _first(map(make, heads)))
        if options.names == ("none",):
            asked = []
        elif options.names == ("auto",):
            ngram = self._named("ngram", serving)
            asked = [ngram] if find_head() is None else [ngram, serving]
        else:
            asked = [self._named(name, serving) for name in options.names]
        made = {id(one): one for one in map(make, asked)}.values()
        declined = [one for one in made if isinstance(one, Declined)]
        return tuple(one for one in made if not isinstance(one, Declined)), declined

    def _named(self, name: str, serving: SpeculatorFactory) -> SpeculatorFactory:
        """The factory of that name, where it is the alias the one given.

        Raises:
            OptionError: an unknown name.
        """
        if name in self._factories:
            return self._factories[name]
        if name == DRAFT_HEAD:
            return serving
        raise OptionError(
            f"spec type {name!r}: expected auto or none alone, or names joined by commas from "
            f"{', '.join(self.names[2:])}"
        )


def _first(made: Iterable[Speculator | Declined]) -> Speculator | Declined:
    """The first that serves the attached draft head, else the reasons of all."""
    reasons = []
    for one in made:
        if not isinstance(one, Declined):
            return one
        reasons.append(f"{one.name}: {one.reason}")
    return Declined(DRAFT_HEAD, "; ".join(reasons) or "no algorithm for draft heads is known")


def _made(
    factory: SpeculatorFactory,
    options: SpecOptions,
    target: Target,
    find_head: FindHead,
) -> Speculator | Declined:
    """What the factory makes, if what that needs is there."""
    draft_head = find_head() if factory.requires_draft_head else None
    if factory.requires_draft_head and draft_head is None:
        return Declined(factory.name, "no draft head is attached: the model has none of its own")
    if isinstance(draft_head, Declined):
        return Declined(factory.name, draft_head.reason)
    made = factory.create(target, draft_head, options)
    if isinstance(made, Declined) or not (missing := made.taps - target.taps):
        return made
    plural = "s" if len(missing) > 1 else ""
    return Declined(
        factory.name,
        f"it needs the tap{plural} {joined_taps(missing)}, and the target has "
        f"{joined_taps(target.taps)}",
    )


def default_registry() -> Registry:
    """A new registry with everything that specrt brings."""
    registry = Registry()
    registry.register(SpeculatorFactory("ngram", False, _create_ngram))
    registry.register(SpeculatorFactory(DRAFT_HEAD, True, _create_draft_head))
    registry.register(SpeculatorFactory(BLOCK, True, _create_block))
    return registry


def _create_draft_head(
    target: Target, draft_head: DraftHead | None, options: SpecOptions
) -> DraftHeadSpeculator | Declined:
    if draft_head is None or draft_head.kind != "per_token":
        return Declined(DRAFT_HEAD, "the attached drafter does not draft token by token")
    return DraftHeadSpeculator(draft_head)


def _create_block(
    target: Target, draft_head: DraftHead | None, options: SpecOptions
) -> BlockSpeculator | Declined:
    if draft_head is None or draft_head.kind != "block":
        return Declined(BLOCK, "the head drafts token by token: attach a block drafter")
    return BlockSpeculator(draft_head)


def _create_ngram(
    target: Target, draft_head: DraftHead | None, options: SpecOptions
) -> NgramSpeculator:
    return NgramSpeculator(options.ngram_min, options.ngram_max)
