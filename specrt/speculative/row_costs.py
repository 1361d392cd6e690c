"""What verifies of several row counts cost, measured before the first draft."""

from __future__ import annotations

import time
from collections.abc import Callable

from specrt.speculative.request import Request
from specrt.speculative.speculator import taps_of
from specrt.speculative.target import Target

BUDGET = 0.04
"""Seconds for the timed calls behind the first ones; so of all calls about twice that."""

ROUNDS = 3
"""Calls of each row count at most; the least counts."""

STEADY = 1.5
"""So many times the least plain call the longest may take."""


def row_seconds(
    target: Target, request: Request, clock: Callable[[], float] = time.perf_counter
) -> dict[int, float]:
    """Measure verifies of the request's own windows, of some row counts, and keep nothing of them.

    Their rows go behind the sequence's cursor, like drafts of which nothing lands: no cursor moves,
    the next step overwrites them, and neither a slot nor memory is needed that steps would not
    need. What is timed is what steps do, behind as many keys as the request has now.

    All row counts take turns. The first call of each counts only beside a second, and not against
    the budget: a device may have to compile and to capture for it, which is not lost. Where one
    plain call shows that two row counts do not fit into the budget, as of large models and on slow
    devices, nothing else is measured; where plain calls differ too much, something disturbed them,
    and all is dropped. Then real steps teach what they cost.

    Args:
        target: of the request's sequence.
        request: between two steps.
        clock: in seconds.

    Returns:
        Seconds by K = T - 1 of what was measured in time: none, or K = 0 and others.
    """
    plain = max(_call(target, request, 0, clock), 1e-9)
    room = target.context - request.sequence.cursor.cache_len
    sizes = measured_sizes(min(request.max_draft, room - 1))[: int(BUDGET / (1.25 * plain))]
    if len(sizes) < 2:
        return {}
    first = {size: _call(target, request, size, clock) for size in sizes}
    calls: dict[int, list[float]] = {}
    spent = 0.0
    for size in sizes * (ROUNDS - 1):
        if spent >= BUDGET:
            break
        seconds = _call(target, request, size, clock)
        spent += seconds
        calls.setdefault(size, [first[size]]).append(seconds)
    if len(calls) < 2 or max(calls[0]) > STEADY * min(calls[0]):
        return {}
    return {size: min(seconds) for size, seconds in calls.items()}


def measured_sizes(most: int) -> list[int]:
    """The K in 0 .. ``most`` to measure, those first that tell most.

    The ends, then both sides of the steps at multiples of 8 rows, which kernels take at a time, and
    what lies below.
    """
    steps = [size for rows in (8, 16, 32, 64) for size in (rows - 1, rows)]
    order = [0, most, *steps[:2], 3, 1, *steps[2:]]
    return list(dict.fromkeys(size for size in order if 0 <= size <= most))


def _call(target: Target, request: Request, size: int, clock: Callable[[], float]) -> float:
    """Seconds of one verify with so many draft tokens."""
    draft_tokens = [request.sequence.last_token] * size
    windows = [request.window(draft_tokens, target.max_draw_ids)]
    taps, logits = taps_of(request.speculators), request.reads_logits(windows[0])
    target.prepare(windows, taps=taps, logits=logits)
    begin = clock()
    target.verify(windows, taps=taps, logits=logits)
    return clock() - begin
