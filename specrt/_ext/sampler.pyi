from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from specrt.options import SamplingParams
from specrt.state.messages import TokenLogprob

class Sampler:
    seed: int
    vocab_size: int
    def __init__(
        self, params: SamplingParams, seed: int, vocab_size: int, end_ids: Iterable[int] = ()
    ) -> None: ...
    def draw(
        self, logits: Any, history: Any, prompt_len: int, position: int, suppress_ends: bool
    ) -> int: ...
    def draw_run(
        self,
        logits: Any,
        history: Any,
        prompt_len: int,
        position: int,
        min_total: int,
        draft_tokens: list[int],
    ) -> list[int]: ...
    def edits(
        self, history: Any, prompt_len: int, draft_tokens: Sequence[int], suppress_ends: bool
    ) -> np.ndarray: ...
    def logprobs(self, logits: Any, token: int, n: int) -> TokenLogprob: ...
