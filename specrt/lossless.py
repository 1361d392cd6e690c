"""The law, checked on a loaded model: with speculation on, the result is bitwise plain's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from specrt.completion import Completion, completion
from specrt.generate import Spec
from specrt.llm import LLM
from specrt.options import MAX_DRAFT, SamplingParams
from specrt.speculative.algorithms.ngram import NgramSpeculator
from specrt.speculative.governor import FixedPolicy
from specrt.speculative.request import Request
from specrt.speculative.speculator import Speculator, joined_names
from specrt.state.messages import Draft, DraftContext, Kept
from specrt.state.sequence import Sequence

NUM_DRAFTS = (1, 3, 8, 16)
MAX_ROUNDS = 6
"""Seeds that a cell may take until its windows have had every outcome."""

PARAMS: Mapping[str, SamplingParams] = {
    "greedy": SamplingParams(logprobs=2),
    "sampled": SamplingParams(temperature=0.9, top_p=0.95, top_k=60, seed=11, logprobs=0),
    "penalties": SamplingParams(
        temperature=0.7,
        repetition_penalty=1.2,
        presence_penalty=0.3,
        frequency_penalty=0.2,
        seed=12,
        logprobs=1,
    ),
}


class MixedDrafts:
    """Drafts that are the true continuation for a seeded number of tokens, then another's.

    So windows are rejected, accepted in part and accepted whole by turns.

    Args:
        truth: the prompt and what plain decoding made of it.
        vocab_size: what the other one leaves open is drawn below it.
        seed: of the numbers and the draws.
        inner: proposes what is not the truth, None for random ids.
    """

    max_draft = MAX_DRAFT
    default_pmin = 0.0

    def __init__(
        self, truth: list[int], vocab_size: int, seed: int, inner: Speculator | None = None
    ) -> None:
        self.name = inner.name if inner else "scripted"
        self.taps = inner.taps if inner else frozenset()
        self.can_arm_after_prefix_reuse = inner is None or inner.can_arm_after_prefix_reuse
        self.wants_prompt = inner is None or inner.wants_prompt
        self._truth, self._vocab_size, self._inner = truth, vocab_size, inner
        self._random = np.random.default_rng(seed)

    def propose(self, contexts: list[DraftContext]) -> list[Draft]:
        """One draft of the whole length per context."""
        return [
            Draft(self._mix(context, guesses), [], self.name)
            for context, guesses in zip(contexts, self._guesses(contexts), strict=True)
        ]

    def commit(self, kept: list[Kept]) -> None:
        """The other one hears of it."""
        if self._inner:
            self._inner.commit(kept)

    def reset(self, sequence: Sequence) -> None:
        """The other one hears of it."""
        if self._inner:
            self._inner.reset(sequence)

    def heard(self, sequence: Sequence) -> int:
        """What the other one has heard."""
        return self._inner.heard(sequence) if self._inner else sequence.cursor.num_tokens

    def _guesses(self, contexts: list[DraftContext]) -> list[list[int]]:
        inner = self._inner
        if inner is None:
            return [[] for _ in contexts]
        asked = [replace(c, num_draft=min(c.num_draft, inner.max_draft)) for c in contexts]
        return [draft.tokens for draft in inner.propose(asked)]

    def _mix(self, context: DraftContext, guesses: list[int]) -> list[int]:
        wanted, start = context.num_draft, context.sequence.cursor.num_tokens
        some = int(self._random.integers(0, wanted + 1))
        right = (0, some, wanted)[int(self._random.integers(3))]
        noise = self._random.integers(0, self._vocab_size, wanted).tolist()
        guesses = (guesses + noise[len(guesses) :])[:wanted]
        truth = self._truth[start : start + right]
        return truth + guesses[len(truth) :]


@dataclass(slots=True)
class Cell:
    """One setting with one drafter and one K, over all prompts.

    Args:
        setting: how tokens are drawn.
        drafter: who drafted.
        num_draft: K, None where the governor chose.
        none, partial, whole: how many windows had m = 0, 0 < m < K and m = K.
        difference: the first one from plain, None if there is none.
    """

    setting: str
    drafter: str
    num_draft: int | None
    none: int = 0
    partial: int = 0
    whole: int = 0
    difference: str | None = None

    @property
    def covered(self) -> bool:
        """True if the windows had every outcome that there is."""
        return bool(self.none and self.whole and (self.partial or self.num_draft == 1))

    def count(self, num_draft: int, num_accepted: int) -> None:
        """Count a window; shorter ones than K, at an end, say nothing of K."""
        if self.num_draft not in (None, num_draft):
            return
        self.none += num_accepted == 0
        self.whole += num_accepted == num_draft
        self.partial += 0 < num_accepted < num_draft


@dataclass(slots=True)
class LosslessCheck:
    """Runs every cell of the matrix.

    Args:
        llm: the model.
        prompts: ids by name.
        max_tokens: of an answer.
        spec: what the last cell of each setting uses, as a user would.
    """

    llm: LLM
    prompts: Mapping[str, list[int]]
    max_tokens: int
    spec: Spec
    _plain: dict[tuple[str, str], Completion] = field(default_factory=dict)

    @property
    def settings(self) -> tuple[str, ...]:
        """The rows of the matrix; a stop string needs text."""
        return (*PARAMS, "stop string") if self.llm.tokenizer.has_text else tuple(PARAMS)

    def __len__(self) -> int:
        return len(self.settings) * (2 * len(NUM_DRAFTS) + 1)

    def cells(self) -> Iterator[Cell]:
        """Each cell when it is done."""
        drafters: dict[str, Callable[[], Speculator | None]] = {
            "scripted": lambda: None,
            "ngram": NgramSpeculator,
        }
        for setting in self.settings:
            for drafter, make in drafters.items():
                for num_draft in NUM_DRAFTS:
                    cell = Cell(setting, drafter, num_draft)
                    self._run_mixed(cell, make)
                    yield cell
            cell = Cell(setting, "as loaded", None)
            self._run_as_loaded(cell)
            yield cell

    def _run_mixed(self, cell: Cell, make: Callable[[], Speculator | None]) -> None:
        vocab_size = self.llm.target.vocab_size
        for seed in range(MAX_ROUNDS):
            for prompt, ids in self.prompts.items():
                params = self._params(cell.setting, prompt)
                whole = self._whole(cell.setting, prompt)
                truth = ids + whole.token_ids
                drafts = MixedDrafts(truth, vocab_size, seed, make())
                request = fixed_request(self.llm, ids, params, (drafts,), cell.num_draft)
                got = run_to_the_end(self.llm, request, cell.count)
                self._compare(cell, prompt, got)
            if cell.covered or cell.difference:
                return

    def _run_as_loaded(self, cell: Cell) -> None:
        for prompt, ids in self.prompts.items():
            with self.llm.stream(ids, self._params(cell.setting, prompt), spec=self.spec) as stream:
                seen = (0, 0)
                for _ in stream:
                    now = (stream.stats.num_drafted, stream.stats.num_accepted)
                    if now[0] > seen[0]:
                        cell.count(now[0] - seen[0], now[1] - seen[1])
                    seen = now
            assert stream.completion is not None
            self._compare(cell, prompt, stream.completion)

    def _params(self, setting: str, prompt: str) -> SamplingParams:
        if setting == "stop string":
            text = self._whole(setting, prompt).text
            middle = text[len(text) // 2 :][:4]
            return replace(self._unstopped(setting), stop=(middle,) if middle else ())
        return self._unstopped(setting)

    def _unstopped(self, setting: str) -> SamplingParams:
        params = PARAMS.get(setting, PARAMS["greedy"])
        return replace(params, max_tokens=self.max_tokens, ignore_eos=True)

    def _whole(self, setting: str, prompt: str) -> Completion:
        """Plain decoding, not cut by the stop string: drafts go on behind it."""
        setting = "greedy" if setting == "stop string" else setting
        return self._decoded(setting, prompt, self._unstopped(setting))

    def _decoded(self, setting: str, prompt: str, params: SamplingParams) -> Completion:
        key = (setting, prompt)
        if key not in self._plain:
            request = fixed_request(self.llm, self.prompts[prompt], params)
            self._plain[key] = run_to_the_end(self.llm, request)
        return self._plain[key]

    def _compare(self, cell: Cell, prompt: str, got: Completion) -> None:
        plain = self._decoded(cell.setting, prompt, self._params(cell.setting, prompt))
        if cell.difference is None and (found := difference(got, plain)) is not None:
            cell.difference = f"{prompt}: {found}"


def fixed_request(
    llm: LLM,
    ids: list[int],
    params: SamplingParams,
    speculators: tuple[Speculator, ...] = (),
    num_draft: int | None = None,
) -> Request:
    """A request in a sequence of its own that drafts K tokens in every step.

    Args:
        speculators: who drafts, in the order asked; none for plain decoding.
        num_draft: K, None for the most that there is.
    """
    request = llm.generator.request(llm.target.open_sequence(), ids, params, None)
    request.speculators = speculators
    request.stats.speculator = joined_names(speculators)
    request.max_draft = num_draft or MAX_DRAFT
    request.policy = FixedPolicy(request.max_draft)
    return request


def run_to_the_end(
    llm: LLM, request: Request, count: Callable[[int, int], None] | None = None
) -> Completion:
    """Prefill and step until the request ends, and give its sequence back.

    Args:
        count: hears K and m of every window with a draft.
    """
    runtime = llm.generator.runtime
    try:
        runtime.prefill(request)
        while request.sequence.cursor.finish_reason is None:
            before = request.stats.num_drafted
            (acceptance,) = runtime.step([request])
            drafted = request.stats.num_drafted - before
            if count is not None and drafted:
                count(drafted, acceptance.num_accepted)
        return completion(request)
    finally:
        llm.target.close_sequence(request.sequence)


def difference(got: Completion, plain: Completion) -> str | None:
    """Where two completions differ first, None if they are the same bit for bit."""
    for place, (token, expected) in enumerate(zip(got.token_ids, plain.token_ids, strict=False)):
        if token != expected:
            return f"token {place} is {token}, plain {expected}"
    for name in ("emitted", "finish_reason", "text", "logprobs"):
        mine, theirs = (_bits(side, name) for side in (got, plain))
        if mine != theirs:
            return f"{name} {mine}, plain {theirs}"
    return None


def _bits(side: Completion, name: str) -> str:
    """A field as text that is equal only for equal bits: floats are written in full."""
    return repr(side.stats.emitted if name == "emitted" else getattr(side, name))
