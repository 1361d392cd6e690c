"""Generating: prompts in, completions or pieces of text out, over one target."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from operator import index
from typing import Any, Final

import numpy as np

from specrt.completion import Completion, completion
from specrt.errors import ContextError, OptionError
from specrt.gguf.chat_template import ChatTemplate
from specrt.gguf.tokenizer import Tokenizer
from specrt.options import SamplingParams, SpecOptions
from specrt.sampling import make_sampler
from specrt.speculative import chain
from specrt.speculative.accept import Boundary
from specrt.speculative.request import Request
from specrt.speculative.runtime import Runtime
from specrt.speculative.speculation import Speculation
from specrt.speculative.speculator import Speculator, joined_names
from specrt.speculative.target import Target
from specrt.state.sequence import Sequence as TokenSequence
from specrt.stats import Stats
from specrt.stream import Pieces, Shown, Stream

Message = Mapping[str, Any]
Prompt = str | Sequence[int] | np.ndarray


class Inherit(Enum):
    """Stands for: as it was set when the model was loaded."""

    INHERIT = "inherit"


INHERIT: Final = Inherit.INHERIT
Spec = SpecOptions | str | None | Inherit


class Generator:
    """Turns prompts into requests and runs them.

    Args:
        target: the model.
        tokenizer: the model's.
        speculation: resolves speculation options against the target, once for equal options.
        spec: the options where a call gives none.
    """

    def __init__(
        self, target: Target, tokenizer: Tokenizer, speculation: Speculation, spec: SpecOptions
    ) -> None:
        self.target = target
        self.tokenizer = tokenizer
        self.runtime = Runtime(target)
        self.spec = spec
        self._speculation = speculation

    def options(self, spec: Spec) -> SpecOptions:
        """What a call's setting means: a name changes who drafts, and leaves the rest as loaded.

        Raises:
            OptionError: it is no such setting.
        """
        if isinstance(spec, Inherit):
            return self.spec
        return replace(self.spec, type=spec) if isinstance(spec, str) else SpecOptions.of(spec)

    def ids(self, prompt: Prompt) -> list[int]:
        """The prompt's ids, checked.

        Raises:
            OptionError: it is neither text nor ids, or holds ids outside the vocabulary.
        """
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else _integers(prompt)
        self.check_ids(ids)
        return ids

    def check_ids(self, ids: list[int]) -> None:
        """Check that ids are the vocabulary's.

        Raises:
            OptionError: one is not.
        """
        self._check_ids("the prompt", ids)

    def check_params(self, params: SamplingParams) -> None:
        """Check what only the model can: that the ids in it are the vocabulary's.

        Raises:
            OptionError: one is not, or these are no sampling params.
        """
        if not isinstance(params, SamplingParams):
            raise OptionError(
                f"params is {type(params).__name__}: expected SamplingParams, or None for greedy"
            )
        self._check_ids("logit_bias", params.logit_bias or ())
        self._check_ids("stop_token_ids", params.stop_token_ids or ())

    def _check_ids(self, holder: str, ids: Iterable[int]) -> None:
        size = self.target.vocab_size
        bad = next((token for token in ids if not 0 <= token < size), None)
        if bad is not None:
            raise OptionError(
                f"{holder} holds the id {bad}: expected ids from 0 to {size - 1}, the vocabulary "
                f"has {size}; take them from this model's tokenizer"
            )

    def check_length(self, ids: list[int]) -> None:
        """Check that a prompt holds something and leaves room.

        Raises:
            OptionError: it is empty.
            ContextError: it leaves no room for a token.
        """
        if not ids:
            raise OptionError("the prompt has no tokens: expected at least one; pass some text")
        if len(ids) >= self.target.context:
            raise ContextError(
                f"the prompt has {len(ids)} tokens, and the context is {self.target.context}: "
                "expected a shorter prompt; load with a larger context, or shorten it"
            )

    def request(
        self, sequence: TokenSequence, ids: list[int], params: SamplingParams, spec: Spec
    ) -> Request:
        """Set a sequence to ``ids``, keeping what it has consumed of them already.

        Raises:
            OptionError: the prompt is empty, or an option does not fit the model.
            ContextError: it leaves no room for a token.
        """
        self.check_length(ids)
        self.check_params(params)
        resolved = self._speculation.resolve(self.options(spec))
        stats = Stats(
            speculator=joined_names(resolved.speculators),
            declined=[f"{d.name}: {d.reason}" for d in resolved.declined],
            prompt_tokens=len(ids),
            num_draft=resolved.num_draft if resolved.speculators else None,
            pmin=resolved.pmin if resolved.speculators else None,
        )
        end_ids = frozenset(() if params.ignore_eos else self.tokenizer.end_ids)
        end_ids |= set(params.stop_token_ids or ())
        sampler = make_sampler(params, self.target.vocab_size, end_ids)
        stats.seed = None if params.greedy else sampler.seed
        self._set_prompt(sequence, ids, resolved.speculators)
        stats.cached_tokens = sequence.cursor.cache_len
        room = self.target.context - len(ids)
        new_tokens = room if params.max_tokens is None else min(room, params.max_tokens)
        return Request(
            sequence=sequence,
            params=params,
            sampler=sampler,
            boundary=Boundary(
                end_ids=end_ids,
                stops=tuple(stop.encode() for stop in params.stop or ()),
                min_total=len(ids) + params.min_tokens,
                max_total=len(ids) + new_tokens,
                token_bytes=self.tokenizer.token_bytes,
            ),
            speculators=resolved.speculators,
            policy=resolved.policy(),
            max_draft=resolved.num_draft,
            pmin=resolved.pmin,
            stats=stats,
        )

    def _set_prompt(
        self, sequence: TokenSequence, ids: list[int], speculators: tuple[Speculator, ...]
    ) -> None:
        """Rewind to the longest common prefix, and put the prompt into the history."""
        consumed = sequence.history[: sequence.cursor.cache_len]
        most = min(len(consumed), len(ids) - 1)  # the last id is fed by the first step
        differs = np.flatnonzero(consumed[:most] != np.asarray(ids[:most], np.int32))
        common = int(differs[0]) if len(differs) else most
        self._rewind(sequence, common)
        while (heard := chain.heard(speculators, sequence)) < sequence.cursor.cache_len:
            self._rewind(sequence, heard)
        sequence.history[: len(ids)] = ids
        sequence.text.clear()
        sequence.prompt_len = len(ids)
        sequence.cursor = sequence.cursor._replace(num_tokens=len(ids))

    def _rewind(self, sequence: TokenSequence, num_tokens: int) -> None:
        """Go back to a prefix, or as near below as the target can, and everyone follows."""
        cache_len = self.target.rewind(sequence, num_tokens)
        cursor = sequence.cursor
        sequence.cursor = cursor._replace(num_tokens=cache_len, text_len=0, finish_reason=None)
        chain.reset(sequence)

    def run(self, request: Request) -> Pieces:
        """Prefill and step until the request ends; a piece per step."""
        start = time.perf_counter()
        self.runtime.prefill(request)
        shown = Shown()
        while request.sequence.cursor.finish_reason is None:
            self._step([request], start)
            yield shown.piece(request)
        self.runtime.settle(request)

    def stream(self, ids: list[int], params: SamplingParams, spec: Spec) -> Stream:
        """A stream in a sequence of its own."""
        sequence = self.target.open_sequence()
        try:
            request = self.request(sequence, ids, params, spec)
        except BaseException:
            self.target.close_sequence(sequence)
            raise
        return Stream(self.run(request), request, partial(self.target.close_sequence, sequence))

    def complete(
        self, prompts: list[list[int]], params: list[SamplingParams], spec: Spec
    ) -> list[Completion]:
        """All prompts, as many at a time as there are free sequences.

        The time to a prompt's first token counts from this call, the wait for the others included.

        Raises:
            OptionError, ContextError: a prompt is empty or does not fit, or an option does not fit
                the model; told before any work.
        """
        start = time.perf_counter()
        for ids, own_params in zip(prompts, params, strict=True):
            self.check_length(ids)
            self.check_params(own_params)
        waiting = deque(enumerate(zip(prompts, params, strict=True)))
        running: dict[int, Request] = {}
        done: dict[int, Completion] = {}
        try:
            while waiting or running:
                while waiting and (not running or len(running) < self.target.max_sequences):
                    try:
                        sequence = self.target.open_sequence()
                    except ContextError:
                        if not running:
                            raise
                        break
                    number, (ids, own_params) = waiting.popleft()
                    running[number] = self._admit(sequence, ids, own_params, spec)
                self._step(list(running.values()), start)
                for number in [n for n, r in running.items() if r.sequence.cursor.finish_reason]:
                    request = running.pop(number)
                    done[number] = completion(request)
                    self.target.close_sequence(request.sequence)
        finally:
            for request in running.values():
                self.target.close_sequence(request.sequence)
        return [done[number] for number in range(len(prompts))]

    def _admit(
        self, sequence: TokenSequence, ids: list[int], params: SamplingParams, spec: Spec
    ) -> Request:
        try:
            request = self.request(sequence, ids, params, spec)
            self.runtime.prefill(request)
        except BaseException:
            self.target.close_sequence(sequence)
            raise
        return request

    def _step(self, requests: list[Request], start: float) -> None:
        """Step; for a first token, note the time since ``start``."""
        self.runtime.step(requests)
        for request in requests:
            if request.stats.time_to_first_token is None:
                request.stats.time_to_first_token = (time.perf_counter() - start) * 1e3


def _integers(prompt: Sequence[int] | np.ndarray) -> list[int]:
    try:
        if isinstance(prompt, bytes | bytearray):
            raise TypeError
        return [index(token) for token in prompt]
    except TypeError:
        raise OptionError(
            f"the prompt is {type(prompt).__name__}: expected text or a list of integer ids"
        ) from None


def chat_ids(
    tokenizer: Tokenizer, template: ChatTemplate, messages: Sequence[Message], **variables: Any
) -> list[int]:
    """The ids of rendered messages; raw contents are encoded as plain text.

    BOS comes first, once, where the template prints it or the file adds it.

    Source: llama.cpp, which takes a printed BOS off where the file adds one.
    """
    text = template.render(messages, **variables)
    if template.is_raw:
        return tokenizer.encode(text)
    ids = tokenizer.encode(text, add_bos=False, parse_special=True)
    if tokenizer.add_bos and tokenizer.bos_id is not None and ids[:1] != [tokenizer.bos_id]:
        ids.insert(0, tokenizer.bos_id)
    return ids
