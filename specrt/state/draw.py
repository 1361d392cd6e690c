"""How a target draws the tokens of a window itself, where the logits are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specrt.options import SamplingParams

EDIT = np.dtype([("id", "<i4"), ("bias", "<f4"), ("flags", "<i4"), ("count", "<i4")])
"""An id whose logit is changed, its bias, and how often the output has it."""

SEEN, ENDS = 1, 2
"""Flags of an edit: the id is in the history; it is not drawn before ``min_total``."""


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """How one window's tokens are drawn.

    Args:
        params: the options.
        seed: the Philox key; ``params.seed`` is not looked at.
        min_total: ids, prompt included, before which no ``ENDS`` is drawn.
        edits: [n] ``EDIT``, no id twice. The history ends with the window's first token: the draft
            tokens before a row are counted where it is drawn, each of them has an edit for that.
    """

    params: SamplingParams
    seed: int
    min_total: int
    edits: np.ndarray
