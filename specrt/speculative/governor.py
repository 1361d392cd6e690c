"""How many tokens to draft: a fixed number, or the one that pays now."""

from __future__ import annotations

from dataclasses import dataclass

from specrt._ext.governor import AdaptivePolicy, CostCurve
from specrt.errors import OptionError
from specrt.options import MAX_DRAFT

__all__ = ["AdaptivePolicy", "CostCurve", "FixedPolicy", "Governor", "GovernorOptions"]


@dataclass(frozen=True, slots=True)
class GovernorOptions:
    """The governor's constants, fitted by replay over texts, repetitions and several cost curves.

    Args:
        memory: what one more observation of a position leaves of the older ones' weight.
        idle_memory: what a draft that did not reach a position leaves of them.
        propose_memory: like ``memory``, for whether the drafter proposes at all.
        prior: the probability of a match before any was seen.
        prior_weight: how many observations outweigh the prior, and a position's neighbour.
        allowance: what drafting may lose per emitted token, in plain steps.
        first_credit: what it may lose at the beginning, in plain steps.
        most_credit: how much of what it saved it may lose again, in plain steps.
        margin: how much faster than plain decoding drafting must look.
        least_loss: what a draft that missed is taken to lose at least, in plain steps.
        probe: the tokens of a probe.
        row_slope: a row's cost before any was measured, in plain steps.
    """

    memory: float = 0.95
    idle_memory: float = 0.9
    propose_memory: float = 0.95
    prior: float = 0.4
    prior_weight: float = 1.5
    allowance: float = 0.011
    first_credit: float = 2.5
    most_credit: float = 64.0
    margin: float = 0.03
    least_loss: float = 0.25
    probe: int = 2
    row_slope: float = 0.12

    def __post_init__(self) -> None:
        for name in ("memory", "idle_memory", "propose_memory", "prior"):
            self._check(name, 0 <= getattr(self, name) <= 1, "a number in [0, 1]")
        for name in (
            "allowance",
            "first_credit",
            "most_credit",
            "margin",
            "least_loss",
            "row_slope",
        ):
            self._check(name, getattr(self, name) >= 0, "a number >= 0")
        self._check("prior_weight", self.prior_weight > 0, "a number > 0")
        self._check("probe", 1 <= self.probe <= MAX_DRAFT, f"an integer from 1 to {MAX_DRAFT}")

    def _check(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise OptionError(f"{name} = {getattr(self, name)!r}: expected {expected}")


class Governor:
    """Makes the policies of one target's sequences, which share the measured costs."""

    def __init__(self, options: GovernorOptions | None = None) -> None:
        self.options = options or GovernorOptions()
        self.rows = CostCurve(self.options.row_slope)
        self.drafts = CostCurve(0.0)

    def policy(self) -> AdaptivePolicy:
        """A policy for one sequence."""
        return AdaptivePolicy(self.rows, self.drafts, self.options)


class FixedPolicy:
    """Always the same K: the governor is off."""

    plain_seconds = None

    def __init__(self, num_draft: int) -> None:
        self._num_draft = num_draft

    def num_draft(self, max_draft: int) -> int:
        """K, as far as there is room."""
        return min(self._num_draft, max_draft)

    def observe(
        self,
        num_proposed: int,
        num_matched: int,
        draft_seconds: float,
        verify_seconds: float,
        other_seconds: float,
    ) -> None:
        """Nothing to learn."""
