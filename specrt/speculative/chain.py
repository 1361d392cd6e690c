"""Who drafts: each request has a chain of speculators, and the first that proposes is used.

A speculator serves all requests in one call. Where that call fails, it is made again for each
request alone, since proposing and committing twice changes nothing; a request for which it fails
alone goes on without it. So a fault costs one speculator in one request, and nothing else.

A speculator hears of the kept rows right before it is asked: one that nobody asks costs nothing
but a call now and then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from operator import index

from specrt.speculative.request import Request
from specrt.speculative.row_costs import draft_seconds
from specrt.speculative.speculator import Speculator
from specrt.speculative.target import Target
from specrt.state.messages import NO_DRAFT, Draft, DraftContext, Kept
from specrt.state.sequence import Sequence

BACKLOG = 64
"""Kept rows that a speculator has not heard of at most, for the target keeps their taps so long."""


def draft(requests: list[Request], target: Target) -> list[Draft]:
    """One draft per request, from the first of its speculators that has one."""
    if len(requests) == 1:
        return [_draft_alone(requests[0], target)]
    drafts = dict.fromkeys(requests, NO_DRAFT)
    lines = {request: list(request.speculators) for request in requests if request.speculators}

    def ask(member: Speculator, asked: list[Request]) -> None:
        proposed = _proposals(member, asked, [contexts[request] for request in asked], target)
        drafts.update(zip(asked, proposed, strict=True))

    while lines:
        member = _next_asked(list(lines.values()))
        contexts: dict[Request, DraftContext] = {}
        for request, line in lines.items():
            if line[0] is member:
                del line[0]
                limit = _num_draft(request, member, len(requests) - 1)
                if limit > 0:
                    contexts[request] = DraftContext(request.sequence, limit, request.pmin)
        if contexts:
            _serve(member, list(contexts), ask)
        lines = {r: line for r, line in lines.items() if line and not len(drafts[r].tokens)}
    return list(drafts.values())


def _draft_alone(request: Request, target: Target) -> Draft:
    """``draft`` of one request."""
    for member in request.speculators:
        limit = _num_draft(request, member, 0)
        if limit <= 0:
            continue
        context = DraftContext(request.sequence, limit, request.pmin)
        try:
            (proposal,) = _proposals(member, [request], [context], target)
        except Exception as error:
            request.park(member, error)
            continue
        if len(proposal.tokens):
            return proposal
    return NO_DRAFT


def _proposals(
    member: Speculator, asked: list[Request], contexts: list[DraftContext], target: Target
) -> list[Draft]:
    """What a speculator proposes, once it has heard of all rows; the policies hear of it."""
    clock, told = time.perf_counter, 0.0
    for request, context in zip(asked, contexts, strict=True):
        start, (begin, end) = clock(), request.untold(member)
        _tell(member, request, target)
        if end - begin > context.num_draft + 1:  # more than a step leaves to one that drafts
            request.upkeep += clock() - start
        else:
            told += clock() - start
    start = clock()
    proposals = member.propose(contexts)
    seconds = (clock() - start + told) / len(asked)
    proposed = [
        _checked(proposal, context, member, target.vocab_size)
        for context, proposal in zip(contexts, proposals, strict=True)
    ]
    for request, proposal in zip(asked, proposed, strict=True):
        policy, (tokens, confidences, _) = request.policy, proposal
        policy.proposed(member.name, len(tokens), seconds, list(confidences))
    return proposed


def seed_costs(request: Request, target: Target) -> None:
    """Measure what drafts cost where the request's policy has not seen one."""
    for member in request.speculators:
        if request.policy.wants_draft_costs(member.name):
            try:
                _tell(member, request, target)
                seconds = draft_seconds(member, request)
                request.policy.seed_draft_costs(member.name, seconds)
            except Exception as error:
                request.park(member, error)


def commit(requests: Collection[Request], target: Target, most: int = BACKLOG) -> None:
    """Who has not heard of so many kept rows hears of them now."""
    for request in requests:
        for member in request.speculators:
            begin, end = request.untold(member)
            if end - begin < most:
                continue
            start = time.perf_counter()
            try:
                _tell(member, request, target)
            except Exception as error:
                request.park(member, error)
            request.upkeep += time.perf_counter() - start


def _tell(member: Speculator, request: Request, target: Target) -> None:
    """A speculator hears of the kept rows that it has not heard of."""
    begin, end = request.untold(member)
    if begin < end:
        for kept in target.kept_rows(request.sequence, begin, end, member.taps):
            member.commit([kept])
        request.told[member] = end


def commit_prompt(request: Request, kept: Kept) -> None:
    """Those who want the prompt hear of its rows."""
    for member in request.prompt_listeners:
        try:
            member.commit([kept])
        except Exception as error:
            request.park(member, error)


def reset(sequence: Sequence) -> None:
    """Everyone who keeps something for the sequence follows it back, or starts anew."""
    for follower in list(sequence.drafter_states):
        try:
            follower.reset(sequence)
        except Exception:
            del sequence.drafter_states[follower]


def heard(speculators: Collection[Speculator], sequence: Sequence) -> int:
    """The reused prefix that all can draft behind; from there on the prompt must be fed."""
    known = sequence.cursor.cache_len
    for member in speculators:
        if member.wants_prompt and not member.can_arm_after_prefix_reuse:
            try:
                known = max(0, min(known, index(member.heard(sequence))))
            except Exception:
                known = 0
    return known


def _num_draft(request: Request, member: Speculator, others: int) -> int:
    """What the policy wants of the most that a speculator could propose in the room left."""
    room = request.boundary.max_total - request.sequence.cursor.num_tokens - 1
    most = min(room, request.max_draft, member.max_draft)
    if most <= 0:
        return 0
    gate = member.default_pmin  # 0 where drafts have no confidences that a gate could cut by
    if gate > 0 and request.pmin is not None:
        gate = request.pmin
    return min(most, request.policy.num_draft(member.name, most, others, gate))


def _checked(draft: Draft, context: DraftContext, member: Speculator, vocab_size: int) -> Draft:
    """The draft up to its first impossible or unlikely id, at most as long as asked for.

    Raises:
        TypeError: an id is no integer, or a confidence no number.
        ValueError: there are confidences, but not for every id.
    """
    gate = member.default_pmin if context.pmin is None else context.pmin
    gated = len(draft.confidences) > 0
    if gated and len(draft.confidences) < len(draft.tokens):
        raise ValueError(f"{len(draft.confidences)} confidences for {len(draft.tokens)} ids")
    valid = 0
    for token in draft.tokens[: context.num_draft]:
        if not 0 <= index(token) < vocab_size:
            break
        # Written so that a NaN, of logits that are all NaN or -inf, is cut too.
        if gated and not float(draft.confidences[valid]) >= gate:
            break
        valid += 1
    if valid == len(draft.tokens):
        return draft
    return Draft(draft.tokens[:valid], draft.confidences[:valid], draft.source)


def _next_asked(lines: list[list[Speculator]]) -> Speculator:
    """The first in a line who stands behind nobody in another, so that one call serves all.

    Where the lines contradict each other, the first.
    """
    behind = {id(member) for line in lines for member in line[1:]}
    for line in lines:
        if id(line[0]) not in behind:
            return line[0]
    return lines[0][0]


def _serve(
    member: Speculator,
    requests: list[Request],
    call: Callable[[Speculator, list[Request]], None],
) -> None:
    """Call for all requests; if that fails, for each alone, and park the member where it must."""
    try:
        call(member, requests)
    except Exception as error:
        if len(requests) == 1:
            requests[0].park(member, error)
        else:
            for request in requests:
                _serve(member, [request], call)
