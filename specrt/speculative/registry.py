"""The one place that knows which speculators exist, and which of them serve a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specrt.errors import OptionError
from specrt.options import SpecOptions
from specrt.speculative.algorithms.ngram import NgramSpeculator
from specrt.speculative.draft_head import DraftHead
from specrt.speculative.speculator import Speculator
from specrt.speculative.target import Target
from specrt.state.messages import Declined, joined_taps

DRAFT_HEAD = "draft-head"
"""Stands for whichever algorithm serves the attached draft head."""


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
    """The known factories, in the order in which ``draft-head`` tries them."""

    def __init__(self) -> None:
        self._factories: dict[str, SpeculatorFactory] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """What ``SpecOptions.type`` may say."""
        return ("auto", "none", *self._factories, DRAFT_HEAD)

    def register(self, factory: SpeculatorFactory) -> None:
        """Make a factory known.

        Raises:
            OptionError: the name is taken.
        """
        if factory.name in self.names or "," in factory.name:
            raise OptionError(
                f"speculator name {factory.name!r}: expected one without a comma that is not "
                f"among {', '.join(self.names)}"
            )
        self._factories[factory.name] = factory

    def resolve(
        self, options: SpecOptions, target: Target, draft_head: DraftHead | None = None
    ) -> tuple[tuple[Speculator, ...], list[Declined]]:
        """The speculators that the options ask for, and who declined with which reason.

        ``auto`` is n-gram, with the attached draft head chained behind it. None at all means that
        every step is plain.

        Raises:
            OptionError: an unknown name.
        """
        names = options.names
        if names == ("auto",):
            names = ("ngram",) if draft_head is None else ("ngram", DRAFT_HEAD)
        elif names == ("none",):
            names = ()
        self._check(names)
        made = [self._create(name, options, target, draft_head) for name in dict.fromkeys(names)]
        declined = [one for one in made if isinstance(one, Declined)]
        return tuple(one for one in made if not isinstance(one, Declined)), declined

    def _check(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name not in self._factories and name != DRAFT_HEAD:
                raise OptionError(
                    f"spec type {name!r}: expected auto or none alone, or names joined by commas "
                    f"from {', '.join(self.names[2:])}"
                )

    def _create(
        self, name: str, options: SpecOptions, target: Target, draft_head: DraftHead | None
    ) -> Speculator | Declined:
        if name == DRAFT_HEAD:
            return self._create_for_draft_head(options, target, draft_head)
        return _made(self._factories[name], options, target, draft_head)

    def _create_for_draft_head(
        self, options: SpecOptions, target: Target, draft_head: DraftHead | None
    ) -> Speculator | Declined:
        if draft_head is None:
            return Declined(DRAFT_HEAD, "no draft head is attached: the model has none of its own")
        reasons = []
        for factory in self._factories.values():
            if factory.requires_draft_head:
                made = _made(factory, options, target, draft_head)
                if not isinstance(made, Declined):
                    return made
                reasons.append(f"{made.name}: {made.reason}")
        return Declined(DRAFT_HEAD, "; ".join(reasons) or "no algorithm for draft heads is known")


def _made(
    factory: SpeculatorFactory,
    options: SpecOptions,
    target: Target,
    draft_head: DraftHead | None,
) -> Speculator | Declined:
    """What the factory makes, if what that needs is there."""
    if factory.requires_draft_head and draft_head is None:
        return Declined(factory.name, "it needs a draft head, and none is attached")
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
    return registry


def _create_ngram(
    target: Target, draft_head: DraftHead | None, options: SpecOptions
) -> NgramSpeculator:
    return NgramSpeculator(options.ngram_min, options.ngram_max)
