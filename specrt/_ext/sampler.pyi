from collections.abc import Iterable
from typing import Any

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
    def argmax(self, logits: Any) -> int: ...
    def logprobs(self, logits: Any, token: int, n: int) -> TokenLogprob: ...
