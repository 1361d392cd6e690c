"""What is asked: the fixed prompts as ids and text, and random ids for all else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.peers.engine import Job
from specrt.bench.prompts import Prompt
from specrt.generate import chat_ids
from specrt.gguf.chat_template import ChatTemplate
from specrt.gguf.reader import open_gguf
from specrt.gguf.tokenizer import Tokenizer, load_tokenizer
from specrt.memory import usable_context

CONTEXT_STEP, LEAST_CONTEXT = 256, 1280
"""Above the 1,023 tokens with which specrt warms up every chunk size of prefill."""


@dataclass(frozen=True, slots=True)
class Case:
    """A prompt of the fixed set, as every engine gets it."""

    prompt: Prompt
    job: Job


class Cases:
    """Makes jobs for a model file, by specrt's tokenizer and the file's own template.

    Args:
        path: the model.
    """

    def __init__(self, path: Path) -> None:
        self._gguf = open_gguf(path)  # stays open: the tokenizer reads its pieces there
        self._tokenizer: Tokenizer = load_tokenizer(self._gguf)
        special = (self._tokenizer.bos_id, self._tokenizer.eos_id)
        names = (self._piece(token) for token in special)
        self._template = ChatTemplate(self._tokenizer.chat_template, *names)
        self._plain_ids = np.array(
            [
                token
                for token in range(self._tokenizer.vocab_size)
                if self._tokenizer.token_bytes(token) and token not in self._tokenizer.end_ids
            ]
        )

    def of(self, prompt: Prompt, max_tokens: int, ignore_eos: bool) -> Case:
        """A chat with thinking off."""
        variables = {"enable_thinking": False}
        ids = chat_ids(self._tokenizer, self._template, prompt.messages, **variables)
        text = self._template.render(prompt.messages, **variables)
        return Case(prompt, Job(ids, text, max_tokens, ignore_eos))

    def random(self, seed: Sequence[int], length: int, max_tokens: int) -> Job:
        """Ordinary ids at random: a prompt that nobody has seen, and never an end."""
        picked = np.random.default_rng(seed).choice(self._plain_ids, length)
        ids = [int(token) for token in picked]
        text = self._tokenizer.decode(ids)
        return Job(ids, text, max_tokens, ignore_eos=True)

    def context(self, jobs: Sequence[Job]) -> int:
        """Positions that hold every prompt and its answer, in steps of 256."""
        most = max(len(job.ids) + job.max_tokens for job in jobs)
        wanted = max(LEAST_CONTEXT, -(-most // CONTEXT_STEP) * CONTEXT_STEP)
        return min(wanted, usable_context(self._gguf, None))

    def _piece(self, token: int | None) -> str:
        if token is None:
            return ""
        return self._tokenizer.token_bytes(token, skip_special=False).decode(errors="replace")
