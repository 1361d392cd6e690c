"""From sampling options to a sequence's sampler."""

from __future__ import annotations

import os
from collections.abc import Iterable

from specrt._ext.sampler import Sampler
from specrt.options import SamplingParams


def make_sampler(params: SamplingParams, vocab_size: int, end_ids: Iterable[int] = ()) -> Sampler:
    """A sampler for one sequence; its ``seed`` says which seed it draws with.

    A seed of None is drawn from the operating system.

    Args:
        params: how tokens are drawn.
        vocab_size: the length of a row of logits.
        end_ids: what must not be drawn before ``min_tokens``.

    Raises:
        OptionError: a biased id is outside the vocabulary.
    """
    seed = int.from_bytes(os.urandom(8)) if params.seed is None else params.seed
    return Sampler(params, seed, vocab_size, end_ids)
