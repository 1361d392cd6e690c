"""From speculation options to who drafts, with which gate and under which policy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from specrt._ext.governor import CostCurve
from specrt.options import MAX_DRAFT, GovernorOptions, SpecOptions
from specrt.speculative.draft_head import DraftHead
from specrt.speculative.governor import FixedPolicy, Governor
from specrt.speculative.registry import FindHead, Registry
from specrt.speculative.request import Policy
from specrt.speculative.speculator import Speculator
from specrt.speculative.target import Target
from specrt.state.messages import Declined

DEFAULT_NUM_DRAFT = 8


@dataclass(frozen=True, slots=True)
class Resolved:
    """Options with nothing left open.

    Args:
        speculators: who drafts, in the order asked; none for plain decoding.
        declined: who could not serve, and why.
        num_draft: the most tokens of a draft.
        pmin: the gate, None for each speculator's own.
        policy: makes a request's policy.
    """

    speculators: tuple[Speculator, ...]
    declined: list[Declined]
    num_draft: int
    pmin: float | None
    policy: Callable[[], Policy]


@dataclass(frozen=True, slots=True)
class _Made:
    speculators: tuple[Speculator, ...]
    declined: list[Declined]
    governor: Governor


class Speculation:
    """Resolves options against one target.

    Speculators are made once for options that differ in numbers only; all share what rows of the
    target, and drafts of a speculator, were measured to cost.

    Args:
        target: the model.
        registry: the known speculators.
        find_head: attached drafter weights, loaded when somebody first needs them.
    """

    def __init__(
        self, target: Target, registry: Registry, find_head: FindHead = lambda: None
    ) -> None:
        self._target = target
        self._registry = registry
        self._find_head = find_head
        self._head: DraftHead | Declined | None = None
        self._looked = False
        self._looking = threading.Lock()
        self._made: dict[SpecOptions, _Made] = {}
        self._rows: dict[float, CostCurve] = {}  # by the slope that is assumed at first
        self._drafts: dict[str, CostCurve] = {}  # by the speculator's name

    @property
    def loaded_head(self) -> DraftHead | None:
        """The draft head, if somebody needed it and it is there."""
        return None if isinstance(self._head, Declined) else self._head

    def _attached(self) -> DraftHead | Declined | None:
        """The draft head, from the first time on that somebody needs it."""
        with self._looking:
            if not self._looked:
                self._head, self._looked = self._find_head(), True
        return self._head

    def resolve(self, options: SpecOptions) -> Resolved:
        """Who drafts under these options.

        ``num_draft`` is the option's, else the target's preference, else what a drafter of whole
        blocks proposes, else 8.

        Raises:
            OptionError: an unknown speculator.
        """
        governor = options.governor or True
        made = self._make(replace(options, num_draft=None, pmin=None, governor=governor))
        block = min((member.max_draft for member in made.speculators), default=MAX_DRAFT)
        default = block if block < MAX_DRAFT else DEFAULT_NUM_DRAFT
        num_draft = options.num_draft or self._target.preferred_num_draft or default
        fixed: Callable[[], Policy] = partial(FixedPolicy, num_draft)
        policy = made.governor.policy if options.governor else fixed
        return Resolved(made.speculators, made.declined, num_draft, options.pmin, policy)

    def _make(self, options: SpecOptions) -> _Made:
        """The speculators that the options name, whatever their numbers."""
        if options not in self._made:
            speculators, declined = self._registry.resolve(options, self._target, self._attached)
            given = options.governor
            tuned = given if isinstance(given, GovernorOptions) else GovernorOptions()
            rows = self._rows.setdefault(tuned.row_slope, CostCurve(tuned.row_slope))
            self._made[options] = _Made(speculators, declined, Governor(tuned, rows, self._drafts))
        return self._made[options]
