"""From speculation options to who drafts, with which gate and under which policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from specrt._ext.governor import CostCurve
from specrt.options import MAX_DRAFT, GovernorOptions, SpecOptions
from specrt.speculative.draft_head import DraftHead
from specrt.speculative.governor import FixedPolicy, Governor
from specrt.speculative.registry import Registry
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
    target were measured to cost.

    Args:
        target: the model.
        registry: the known speculators.
        draft_head: attached drafter weights.
    """

    def __init__(
        self, target: Target, registry: Registry, draft_head: DraftHead | None = None
    ) -> None:
        self._target = target
        self._registry = registry
        self._draft_head = draft_head
        self._made: dict[SpecOptions, _Made] = {}
        self._rows: dict[float, CostCurve] = {}  # by the slope that is assumed at first

    def resolve(self, options: SpecOptions) -> Resolved:
        """Who drafts under these options.

        ``num_draft`` is the option's, else the target's preference, else one less than the draft
        head's block, else 8.

        Raises:
            OptionError: an unknown speculator.
        """
        governor = options.governor or True
        made = self._make(replace(options, num_draft=None, pmin=None, governor=governor))
        num_draft = options.num_draft or self._target.preferred_num_draft
        if num_draft is None and self._draft_head is not None:
            num_draft = min(self._draft_head.block_size - 1, MAX_DRAFT)
        num_draft = num_draft or DEFAULT_NUM_DRAFT
        fixed: Callable[[], Policy] = partial(FixedPolicy, num_draft)
        policy = made.governor.policy if options.governor else fixed
        return Resolved(made.speculators, made.declined, num_draft, options.pmin, policy)

    def _make(self, options: SpecOptions) -> _Made:
        """The speculators that the options name, whatever their numbers."""
        if options not in self._made:
            speculators, declined = self._registry.resolve(options, self._target, self._draft_head)
            given = options.governor
            tuned = given if isinstance(given, GovernorOptions) else GovernorOptions()
            rows = self._rows.setdefault(tuned.row_slope, CostCurve(tuned.row_slope))
            self._made[options] = _Made(speculators, declined, Governor(tuned, rows))
        return self._made[options]
