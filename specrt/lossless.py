"""The law, checked on a loaded model: with speculation on, the result is bitwise plain's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from specrt.completion import Completion, completion
from specrt.generate import Spec
from specrt.llm import LLM
from specrt.mixed_drafts import SCRIPTED, MixedDrafts
from specrt.options import MAX_DRAFT, SamplingParams
from specrt.speculative.governor import FixedPolicy
from specrt.speculative.request import Request
from specrt.speculative.speculator import Speculator, joined_names

NUM_DRAFTS = (1, 3, 8, 16)
MAX_ROUNDS = 6
"""Seeds that a cell may take until it has seen all that it is to see."""

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
    # Without log probabilities a target that can draws in verify.
    "drawn": SamplingParams(temperature=0.8, min_p=0.02, repetition_penalty=1.1, seed=13),
}
END_ID, STOP_STRING = "end id", "stop string"
ENDED: Mapping[str, str] = {END_ID: "sampled", STOP_STRING: "greedy"}
"""Settings with an end in the middle of the answer, and whose answer that is."""


@dataclass(slots=True)
class Cell:
    """One setting with one drafter and one K, over all prompts.

    Args:
        setting: how tokens are drawn.
        drafter: who drafted.
        num_draft: K, None where the governor chose.
        none, partial, whole: how many windows had m = 0, 0 < m < K and m = K.
        num_inner: ids in their drafts that are the drafter's own.
        unstopped: answers of a setting with an end in the middle that had none.
        difference: the first one from plain, None if there is none.
    """

    setting: str
    drafter: str
    num_draft: int | None
    none: int = 0
    partial: int = 0
    whole: int = 0
    num_inner: int = 0
    unstopped: int = 0
    difference: str | None = None

    @property
    def windows(self) -> int:
        """How many were counted."""
        return self.none + self.partial + self.whole

    @property
    def missed(self) -> list[str]:
        """What this cell was to see and did not."""
        missed = [f"{self.unstopped} answers without their end"] if self.unstopped else []
        if self.num_draft is None:
            return missed if self.windows else [*missed, "no draft was verified"]
        if self.drafter != SCRIPTED and not self.num_inner:
            missed.append(f"no id of {self.drafter}'s")
        outcomes = {"m = 0": self.none, "m = K": self.whole}
        if self.num_draft > 1:
            outcomes["0 < m < K"] = self.partial
        return missed + [f"no {outcome}" for outcome, count in outcomes.items() if not count]

    @property
    def covered(self) -> bool:
        """True if it saw all that it was to see."""
        return not self.missed

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

    The drafters are scripted drafts, each speculator that ``spec`` stands for behind scripted
    beginnings, and ``spec`` itself as a user would have it.

    Args:
        llm: the model.
        prompts: ids by name.
        max_tokens: of an answer.
        spec: the speculation to check.
    """

    llm: LLM
    prompts: Mapping[str, list[int]]
    max_tokens: int
    spec: Spec
    _plain: dict[tuple[str, str], Completion] = field(default_factory=dict)

    @property
    def settings(self) -> tuple[str, ...]:
        """The rows of the matrix; a stop string needs text."""
        return (*PARAMS, END_ID, *([STOP_STRING] if self.llm.tokenizer.has_text else []))

    @property
    def drafters(self) -> dict[str, Speculator | None]:
        """Who stands behind the mixed drafts, by name."""
        options = self.llm.generator.options(self.spec)
        speculators = self.llm.speculation.resolve(options).speculators
        return {SCRIPTED: None} | {member.name: member for member in speculators}

    def __len__(self) -> int:
        return len(self.settings) * (len(self.drafters) * len(NUM_DRAFTS) + 1)

    def cells(self) -> Iterator[Cell]:
        """Each cell when it is done."""
        for setting in self.settings:
            for drafter, inner in self.drafters.items():
                for num_draft in NUM_DRAFTS:
                    cell = Cell(setting, drafter, num_draft)
                    self._run_mixed(cell, inner)
                    yield cell
            cell = Cell(setting, "as loaded", None)
            self._run_as_loaded(cell)
            yield cell

    def _run_mixed(self, cell: Cell, inner: Speculator | None) -> None:
        vocab_size = self.llm.target.vocab_size
        for seed in range(MAX_ROUNDS):
            for prompt, ids in self.prompts.items():
                truth = ids + self._whole(cell.setting, prompt).token_ids
                drafts = MixedDrafts(truth, vocab_size, seed, inner)
                params = self._params(cell.setting, prompt)
                request = fixed_request(self.llm, ids, params, (drafts,), cell.num_draft)
                got = run_to_the_end(self.llm, request, cell.count)
                cell.num_inner += drafts.num_inner
                self._compare(cell, prompt, got)
            if cell.covered or cell.unstopped or cell.difference:
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
        """The setting's; an end of its own lies in the middle of what plain decoding gives."""
        params, whole = self._unstopped(setting), self._whole(setting, prompt)
        if setting == STOP_STRING:
            return replace(params, stop=stop_string(whole.text))
        if setting == END_ID:
            return replace(params, stop_token_ids=(end_id(whole.token_ids),), ignore_eos=False)
        return params

    def _unstopped(self, setting: str) -> SamplingParams:
        params = PARAMS[ENDED.get(setting, setting)]
        return replace(params, max_tokens=self.max_tokens, ignore_eos=True)

    def _whole(self, setting: str, prompt: str) -> Completion:
        """Plain decoding, not cut by the setting's end: drafts go on behind it."""
        return self._decoded(ENDED.get(setting, setting), prompt, self._unstopped(setting))

    def _decoded(self, setting: str, prompt: str, params: SamplingParams) -> Completion:
        key = (setting, prompt)
        if key not in self._plain:
            request = fixed_request(self.llm, self.prompts[prompt], params)
            self._plain[key] = run_to_the_end(self.llm, request)
        return self._plain[key]

    def _compare(self, cell: Cell, prompt: str, got: Completion) -> None:
        plain = self._decoded(cell.setting, prompt, self._params(cell.setting, prompt))
        cell.unstopped += cell.setting in ENDED and plain.finish_reason != "stop"
        if cell.difference is None and (found := difference(got, plain)) is not None:
            cell.difference = f"{prompt}: {found}"


def stop_string(text: str) -> str | None:
    """Up to four characters that stand in the middle of a text and nowhere before.

    U+FFFD stands for bytes that are no character, so it is in no stop string.

    Returns:
        None if the text holds no character.
    """
    middle, found = len(text) // 2, []
    for size in (4, 3, 2, 1):
        for start in range(len(text) - size + 1):
            piece = text[start : start + size]
            if "\ufffd" not in piece and text.find(piece) == start:
                distance = abs(start - middle)
                found.append((distance > len(text) // 4, -size, distance, piece))
    return min(found)[-1] if found else None


def end_id(ids: list[int]) -> int:
    """The id whose first place is the nearest to the middle."""
    return min(set(ids), key=lambda token: (abs(ids.index(token) - len(ids) // 2), token))


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
    if len(got.token_ids) != len(plain.token_ids):
        return f"{len(got.token_ids)} tokens, plain {len(plain.token_ids)}"
    for name in ("emitted", "finish_reason", "text", "logprobs"):
        mine, theirs = (_bits(side, name) for side in (got, plain))
        if mine != theirs:
            return f"{name} {mine}, plain {theirs}"
    return None


def _bits(side: Completion, name: str) -> str:
    """A field as text that is equal only for equal bits: floats are written in full."""
    return repr(side.stats.emitted if name == "emitted" else getattr(side, name))
