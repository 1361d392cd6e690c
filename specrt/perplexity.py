"""Logits of every row of a text, and what they say of how likely it is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from specrt.errors import ContextError, OptionError
from specrt.gguf.tokenizer import Tokenizer
from specrt.speculative.target import Target
from specrt.state.messages import Window

ROWS = 64
"""Rows of one forward: their logits are held at once."""


def windows_of_logits(target: Target, ids: list[int]) -> Iterator[np.ndarray]:
    """[T, V] float32 logits of consecutive rows; each is overwritten by the next.

    Raises:
        OptionError: there are no ids.
        ContextError: there are more ids than the context holds.
    """
    if not ids:
        raise OptionError("no tokens: expected at least one; pass some ids")
    if len(ids) > target.context:
        raise ContextError(
            f"{len(ids)} tokens, and the context is {target.context}: expected fewer; load with "
            "a larger context, or pass fewer tokens"
        )
    sequence = target.open_sequence()
    try:
        for start in range(0, len(ids), ROWS):
            tokens = ids[start : start + ROWS]
            verification = target.verify([Window(sequence, tokens, start)], logits=True)
            sequence.cursor = target.rollback(sequence, len(tokens))
            assert verification.logits is not None
            yield verification.logits
    finally:
        target.close_sequence(sequence)


def logits_rows(target: Target, ids: list[int]) -> np.ndarray:
    """The logits after each id: [T, V] float32."""
    return np.concatenate([rows.copy() for rows in windows_of_logits(target, ids)])


def perplexity(target: Target, tokenizer: Tokenizer, text: str, n_ctx: int) -> float:
    """exp of the mean of -log p(next token) over positions n_ctx / 2 .. n_ctx - 2 of each chunk.

    The text is tokenised once and cut into chunks of ``n_ctx``; where the model begins with BOS,
    it takes the place of each chunk's first token.

    Raises:
        OptionError: the text is shorter than one chunk.
        ContextError: a chunk does not fit.
    """
    ids = tokenizer.encode(text)
    if n_ctx < 4 or len(ids) < n_ctx:
        raise OptionError(
            f"a text of {len(ids)} tokens with n_ctx = {n_ctx}: expected n_ctx >= 4 and at least "
            "that many tokens; pass a longer text"
        )
    starts_with_bos = tokenizer.bos_id is not None and ids[0] == tokenizer.bos_id
    total, count = 0.0, 0
    for start in range(0, len(ids) - n_ctx + 1, n_ctx):
        chunk = ids[start : start + n_ctx]
        if starts_with_bos:
            chunk[0] = ids[0]
        for first, rows in zip(
            range(0, n_ctx, ROWS), windows_of_logits(target, chunk), strict=True
        ):
            for row in range(max(n_ctx // 2 - first, 0), min(len(rows), n_ctx - 1 - first)):
                total += surprise(rows[row], chunk[first + row + 1])
                count += 1
    return float(np.exp(total / count))


def surprise(logits: np.ndarray, token: int) -> float:
    """-log softmax(logits)[token] in float64."""
    shifted = logits.astype(np.float64) - float(logits.max())
    return float(np.log(np.exp(shifted).sum()) - shifted[token])
