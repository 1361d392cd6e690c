"""What a prompt gave."""

from __future__ import annotations

from dataclasses import dataclass, field

from specrt.speculative.request import Request
from specrt.state.messages import FinishReason, TokenLogprob
from specrt.stats import Stats


@dataclass(frozen=True, slots=True)
class Completion:
    """What a prompt gave.

    Args:
        text: without the stop string or end token.
        token_ids: emitted ids, the end token included.
        finish_reason: "stop", "length", or "abort" for a stream that was closed before its end.
        logprobs: one per id, empty if not asked for.
        stats: counts and times.
        prompt_token_ids: the prompt.
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    logprobs: list[TokenLogprob]
    stats: Stats
    prompt_token_ids: list[int] = field(repr=False)


def completion(request: Request) -> Completion:
    """What a request has given so far."""
    sequence, cursor = request.sequence, request.sequence.cursor
    request.forget_after_cursor()
    return Completion(
        text=bytes(sequence.text[: cursor.text_len]).decode(errors="replace"),
        token_ids=sequence.history[sequence.prompt_len : cursor.num_tokens].tolist(),
        finish_reason=cursor.finish_reason or "abort",
        logprobs=list(request.logprobs),
        stats=request.stats,
        prompt_token_ids=sequence.history[: sequence.prompt_len].tolist(),
    )
