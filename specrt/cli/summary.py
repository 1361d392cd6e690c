"""The line after an answer: who drafted, how much landed, and what it gained."""

from __future__ import annotations

from specrt.stats import Stats


def summary(stats: Stats) -> str:
    """One line about a completion, and one more per speculator that declined."""
    parts = [f"{stats.emitted} tokens", f"{stats.tokens_per_second:.1f} tok/s"]
    if stats.speculator is None:
        parts.append("plain decoding")
    elif not stats.num_drafted:
        parts.append(f"{stats.speculator}: nothing to draft")
    else:
        parts.append(
            f"{stats.speculator}: {stats.num_accepted} of {stats.num_drafted} drafted accepted "
            f"({stats.acceptance_rate:.0%}), {stats.acceptance_length:.2f} tokens a draft step"
        )
        ratio = ratio_to_plain(stats)
        if ratio is not None:
            parts.append(f"{ratio:.2f}x plain")
    if stats.seed is not None:
        parts.append(f"seed {stats.seed}")
    declined = [f"declined {reason}" for reason in stats.declined]
    return "\n".join([" | ".join(parts), *declined])


def ratio_to_plain(stats: Stats) -> float | None:
    """Tokens per second beside those of the plain steps of the same completion, None without any.

    A plain step emits one token, so decoding all plainly would have taken the mean plain step
    for each.
    """
    plain_steps = stats.steps - stats.draft_steps
    if not plain_steps or stats.decode_ms <= 0:
        return None
    return stats.emitted * stats.phases.plain / plain_steps / stats.decode_ms
