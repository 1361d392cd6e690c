"""What verifies of several row counts and drafts cost, measured before the first draft."""

from __future__ import annotations

import time
from collections.abc import Callable

from specrt.speculative.request import Request
from specrt.speculative.speculator import Speculator, taps_of
from specrt.speculative.target import Target
from specrt.state.messages import DraftContext

BUDGET = 0.04
"""Seconds for the timed calls behind the first ones; so of all calls about twice that."""

MOST_DRAFTED = 8
"""Tokens of the longest draft that is measured; behind it the costs go on as they grew."""

ROUNDS = 3
"""Calls of each size at most; the least counts."""

DRAFT_ROUNDS = 10
"""The same of drafts, which are shorter."""

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


def draft_seconds(
    member: Speculator, request: Request, clock: Callable[[], float] = time.perf_counter
) -> dict[int, float]:
    """Measure drafts of one token and of as many as the request asks for, and keep none of them.

    The gate is off, so that a draft has as many tokens as it can have. The first call of each
    length, which may have to compile and to record, does not count; of the others the least does.
    Where one takes longer than the budget, longer drafts are not measured.

    Returns:
        Seconds by the tokens that were proposed; 0 as cheap as the least, since a draft that its
        gate cuts has made a pass all the same. None at all at the end of the context.
    """
    found: dict[int, float] = {}
    sequence = request.sequence
    room = sequence.context - sequence.cursor.num_tokens
    most = min(request.max_draft, member.max_draft, MOST_DRAFTED, room)
    for num_draft in sorted({1, 2, most} & set(range(1, most + 1))):
        context = DraftContext(sequence, num_draft, 0.0)
        spent, rounds = 0.0, 0
        member.propose([context])
        while spent < BUDGET and rounds < DRAFT_ROUNDS:
            begin = clock()
            (draft,) = member.propose([context])
            seconds = clock() - begin
            spent, rounds, size = spent + seconds, rounds + 1, len(draft.tokens)
            found[size] = min(found.get(size, seconds), seconds)
        if spent >= BUDGET:
            break
    return {0: min(found.values())} | found if found else {}


def measured_sizes(most: int) -> list[int]:
    """The K in 0 .. ``most`` to measure, those first that tell most.

    The ends, then both sides of the steps at multiples of 8 rows, which kernels take at a time, and
    what lies below.
    """
    steps = [size for rows in (8, 16, 32, 64) for size in (rows - 1, rows)]
    order = [0, most, *steps[:2], 3, 1, 2, *steps[2:]]
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
