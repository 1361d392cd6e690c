"""How many tokens to draft: a fixed number, or the one that pays now."""

from __future__ import annotations

from specrt._ext.governor import AdaptivePolicy, CostCurve
from specrt.options import GovernorOptions

__all__ = ["AdaptivePolicy", "CostCurve", "FixedPolicy", "Governor"]


class Governor:
    """Makes the policies of one target's sequences, which share the measured costs.

    Args:
        options: its constants.
        rows: what the target's rows cost, as far as that is known already.
        drafts: the same of each speculator's drafts, by its name, in plain steps; grows.
    """

    def __init__(
        self,
        options: GovernorOptions | None = None,
        rows: CostCurve | None = None,
        drafts: dict[str, CostCurve] | None = None,
    ) -> None:
        self.options = options or GovernorOptions()
        self.rows = rows or CostCurve(self.options.row_slope)
        self.drafts = {} if drafts is None else drafts

    def policy(self) -> AdaptivePolicy:
        """A policy for one sequence."""
        return AdaptivePolicy(self.rows, self.drafts, self.options)


class FixedPolicy:
    """Always the same K: the governor is off."""

    rows = None
    plain_seconds = None
    num_parked = num_probes = 0

    def __init__(self, num_draft: int) -> None:
        self._num_draft = num_draft

    def wants_draft_costs(self, member: str) -> bool:
        """No: they decide nothing."""
        return False

    def seed_draft_costs(self, member: str, seconds: dict[int, float]) -> None:
        """Nothing to learn."""

    def num_draft(self, member: str, max_draft: int, others: int = 0, gate: float = 0.0) -> int:
        """K, as far as there is room."""
        return min(self._num_draft, max_draft)

    def proposed(
        self, member: str, num_proposed: int, seconds: float, confidences: list[float]
    ) -> None:
        """Nothing to learn."""

    def observe(
        self, num_proposed: int, num_matched: int, upkeep: float = 0.0, others: int = 0
    ) -> None:
        """Nothing to learn."""
