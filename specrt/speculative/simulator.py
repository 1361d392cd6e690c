"""What a policy would have made of a finished text: replay over a measured cost curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from specrt.options import MAX_DRAFT
from specrt.speculative.governor import FixedPolicy
from specrt.speculative.request import Policy
from specrt.speculative.row_costs import measured_sizes
from specrt.speculative.speculator import Speculator
from specrt.state import sequence as state
from specrt.state.messages import DraftContext

DRAFTER = "drafter"


@dataclass(frozen=True, slots=True)
class Trace:
    """What the drafter proposes at each place of an emitted text, and how much of it is right.

    Args:
        proposed: [tokens] int32, ids proposed when asked for 64 after so many emitted ids.
        matched: [tokens] int32, how many of them are the text.
    """

    proposed: np.ndarray
    matched: np.ndarray


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured seconds.

    Args:
        verify: [65] a step by its num_draft, K = 0 is a plain step.
        draft: a proposal, per token proposed.
        ask: a call of the drafter, whatever it proposes.
    """

    verify: np.ndarray
    draft: float = 0.0
    ask: float = 0.0


@dataclass(frozen=True, slots=True)
class Replay:
    """One policy over one trace.

    Args:
        seconds: the whole text.
        num_drafts: K of each step, as proposed.
        starts: ids emitted before each step.
    """

    seconds: float
    num_drafts: list[int]
    starts: list[int]


def record(tokens: Sequence[int], prompt_len: int, make: Callable[[], Speculator]) -> Trace:
    """Run a drafter that needs no taps beside a finished text.

    Args:
        tokens: prompt and emitted ids.
        prompt_len: ids of the prompt.
        make: the drafter.
    """
    speculator = make()
    sequence = state.Sequence(0, len(tokens))
    sequence.history[: len(tokens)] = tokens
    proposed = np.zeros(len(tokens) - prompt_len, np.int32)
    matched = np.zeros_like(proposed)
    for i in range(len(proposed)):
        end = prompt_len + i
        sequence.cursor = state.Cursor(num_tokens=end, cache_len=end - 1)
        (draft,) = speculator.propose([DraftContext(sequence, MAX_DRAFT)])
        ahead = np.asarray(tokens[end : end + len(draft.tokens)])
        wrong = np.flatnonzero(ahead != draft.tokens[: len(ahead)])
        proposed[i] = len(draft.tokens)
        matched[i] = wrong[0] if len(wrong) else len(ahead)
    return Trace(proposed, matched)


def replay(
    trace: Trace,
    policy: Policy,
    costs: Costs,
    max_draft: int = MAX_DRAFT,
    *,
    measure: bool = False,
) -> Replay:
    """The seconds that the text takes under a policy, end tokens ignored.

    Args:
        measure: rows are measured where the runtime measures them; the time for it is left out.
    """
    seconds, at, num_drafts, starts = 0.0, 0, [], []
    length = len(trace.proposed)
    while at < length:
        room = min(max_draft, length - at - 1)
        if measure and policy.rows is not None and policy.rows.wants_seed:
            sizes = measured_sizes(max_draft)
            policy.rows.seed({size: float(costs.verify[size]) for size in sizes})
        asked = policy.num_draft(DRAFTER, room, 0, 0.0) if room else 0
        proposed = min(asked, int(trace.proposed[at]))
        matched = min(proposed, int(trace.matched[at]))
        draft = costs.ask + costs.draft * proposed if asked else 0.0
        verify = float(costs.verify[proposed])
        if asked:
            policy.proposed(DRAFTER, proposed, draft, [])
        if policy.rows is not None:
            policy.rows.add(proposed, verify)
        policy.observe(proposed, matched, 0.0, 0)
        num_drafts.append(proposed)
        starts.append(at)
        seconds += draft + verify
        at += matched + 1
    return Replay(seconds, num_drafts, starts)


def best_fixed(trace: Trace, costs: Costs, max_draft: int = MAX_DRAFT) -> tuple[int, float]:
    """The fixed K in 0 .. max_draft that would have been fastest, and its seconds."""
    seconds = [
        replay(trace, FixedPolicy(k), costs, max_draft).seconds for k in range(max_draft + 1)
    ]
    best = int(np.argmin(seconds))
    return best, seconds[best]
