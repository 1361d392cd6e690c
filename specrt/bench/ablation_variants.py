"""One model's weights under targets and draft heads that do a thing in another way."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import numpy as np

from specrt.bench.prompts import Prompt
from specrt.bench.rollback_targets import ReplayTarget, SnapshotTarget
from specrt.bench.scripted import SyntheticHead
from specrt.completion import Completion
from specrt.drafters.nextn import NextNWeights, load_weights
from specrt.drafters.nextn_head import NextNHead
from specrt.errors import UnsupportedError
from specrt.generate import INHERIT, Generator, chat_ids
from specrt.llm import LLM
from specrt.models.decoder import Decoder
from specrt.options import SamplingParams, SpecOptions
from specrt.plain_calls import PlainCalls
from specrt.settings import (
    ABLATIONS,
    MTP_DRAFT_PROGRAM,
    MTP_FOLD_CATCHUP,
    VERIFY_DEFER_STATE,
    VERIFY_SNAPSHOTS,
    Setting,
)
from specrt.speculative.algorithms.draft_head import DraftHeadSpeculator
from specrt.speculative.registry import Registry, SpeculatorFactory
from specrt.speculative.speculation import Speculation
from specrt.state.messages import Kept
from specrt.stream import Stream

DEFAULT: Final = "default"
"""The log, folded catch-up, drafts by programs."""


class Model:
    """What all variants share.

    Args:
        llm: loaded without speculation; its target is the default's.
        spec: how far is drafted; the head drafts, and no governor decides.
        draft_ids: the only ones that the head guesses, ascending; None for all.
        acceptance: the probability that a drafted token is the true one, whatever the head drafts;
            None for the head's own tokens.

    Raises:
        UnsupportedError: there is no draft head.
    """

    def __init__(
        self,
        llm: LLM,
        spec: SpecOptions,
        draft_ids: np.ndarray | None = None,
        acceptance: float | None = None,
    ) -> None:
        self.llm, self.acceptance = llm, acceptance
        self.trunk, self.ops = llm.target.trunk, llm.target.ops
        weights = load_weights(llm.head_file, self.trunk, draft_ids)
        if not isinstance(weights, NextNWeights):
            reason = "it has none" if weights is None else weights.reason
            raise UnsupportedError(
                f"{llm.head_file.path}: ablations need a draft head, and {reason}: pass a model "
                "with one, or one in a file of its own as --draft-model"
            )
        self.weights = weights
        self.spec = spec
        self.num_draft = (
            Speculation(llm.target, Registry()).resolve(replace(spec, type="none")).num_draft
        )

    @property
    def options(self) -> dict[str, Any]:
        """Of another decoder over the trunk."""
        target = self.llm.target
        return {"context": target.context, "kv_type": target.kv_type, "max_sequences": 1}

    def ids(self, prompt: Prompt) -> list[int]:
        """The prompt's, with thinking off."""
        llm = self.llm
        messages = prompt.messages
        return chat_ids(llm.tokenizer, llm.chat_template, messages, enable_thinking=False)


Head = Callable[[Model, Decoder], NextNHead]


def _log(model: Model) -> Decoder:
    return Decoder(model.trunk, model.ops, **model.options)


def _snapshots(model: Model) -> Decoder:
    return SnapshotTarget(model.trunk, model.ops, 2, model.num_draft + 1, **model.options)


def _settled(model: Model) -> Decoder:
    return SnapshotTarget(model.trunk, model.ops, 1, 1, **model.options)


def _replay(model: Model) -> Decoder:
    return ReplayTarget(model.trunk, model.ops, **model.options)


def own_head(model: Model, target: Decoder) -> NextNHead:
    """The default's."""
    return NextNHead(model.weights, target, model.trunk)


class UnfoldedHead(NextNHead):
    """Takes all rows in as soon as it has heard of them, in a call of their own."""

    def catch_up(self, rows: list[Kept]) -> None:
        """Keep the hidden rows, and take in the rows that they complete."""
        super().catch_up(rows)
        for sequence in {kept.sequence for kept in rows}:
            state = self._state(sequence)
            first, count = state.taken_in, state.heard - state.taken_in
            if count > 0 and state.has_hidden(first - 1):
                self._passes.take_in(sequence, first, count)
                state.taken_in = first + count


def _unfolded(model: Model, target: Decoder) -> NextNHead:
    return UnfoldedHead(model.weights, target, model.trunk)


def _unrecorded(model: Model, target: Decoder) -> NextNHead:
    around = cast(Decoder, _OverPlainCalls(target))
    return NextNHead(model.weights, around, model.trunk)


class _OverPlainCalls:
    """A target as its draft head sees it, which will record nothing."""

    def __init__(self, target: Decoder) -> None:
        self._target = target
        self.ops = PlainCalls(target.ops)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


@dataclass(frozen=True, slots=True)
class Ablation:
    """A way that is not the default.

    Args:
        name: for the table.
        setting: asks for it with ``value``.
        published: what the default's way, or one like it, gained elsewhere.
        target, head: make its own.
    """

    name: str
    setting: Setting
    value: bool
    published: str = ""
    target: Callable[[Model], Decoder] = _log
    head: Head = own_head


ALL: Final = (
    Ablation("rollback: snapshots", VERIFY_SNAPSHOTS, True, target=_snapshots),
    Ablation(
        "rollback: replay", VERIFY_SNAPSHOTS, False,
        "rollback 3604 -> 0 ms, snapshot 919 -> 69 ms", target=_replay,
    ),
    Ablation(
        "rows: settled at once", VERIFY_DEFER_STATE, False, "5 to 20 %", target=_settled
    ),
    Ablation("catch-up: unfolded", MTP_FOLD_CATCHUP, False, "4 to 5 %", head=_unfolded),
    Ablation("draft: no programs", MTP_DRAFT_PROGRAM, False, head=_unrecorded),
)  # fmt: skip


def asked_for(given: Mapping[str, Any]) -> list[Ablation]:
    """The ablations that settings ask for, all where none is asked for.

    Args:
        given: values by a setting's name, None for the environment's.

    Raises:
        OptionError: a variable holds something else than a switch.
    """
    values = {
        setting.name: setting.from_environment() if (value := given.get(setting.name)) is None
        else value
        for setting in ABLATIONS
    }  # fmt: skip
    asked = [one for one in ALL if values[one.setting.name] == one.value]
    return asked or list(ALL)


class ClockedHead(DraftHeadSpeculator):
    """Tells how long it hears of rows behind the prompt.

    Attributes:
        seconds: in all calls since somebody set it.
    """

    def __init__(self, head: NextNHead) -> None:
        super().__init__(head)
        self.seconds = 0.0

    def commit(self, kept: list[Kept]) -> None:
        """Hand the rows to the head."""
        start = time.perf_counter()
        super().commit(kept)
        rows = kept[0]
        if rows.start_pos >= rows.sequence.prompt_len - 1:  # the prompt's last id is a step's
            self.seconds += time.perf_counter() - start


class Variant:
    """A target, a head and who generates with them.

    Args:
        model: whose weights.
        ablation: None for the default.

    Attributes:
        head: who drafts, or works for a synthetic drafter.
    """

    def __init__(self, model: Model, ablation: Ablation | None) -> None:
        self.ablation = ablation
        self.name = DEFAULT if ablation is None else ablation.name
        self.published = "" if ablation is None else ablation.published
        if ablation is None:
            self.target = model.llm.target
            own = own_head(model, self.target)
        else:
            self.target = ablation.target(model)
            own = ablation.head(model, self.target)
        self.head = head = ClockedHead(own)
        synthetic = None if model.acceptance is None else SyntheticHead(head, model.acceptance)
        self._synthetic, speculator = synthetic, synthetic or head
        registry = Registry()
        registry.register(SpeculatorFactory(speculator.name, False, lambda *_: speculator))
        spec = replace(model.spec, type=speculator.name, governor=False)
        speculation = Speculation(self.target, registry)
        self._generator = Generator(self.target, model.llm.tokenizer, speculation, spec)

    def stream(self, ids: list[int], params: SamplingParams) -> Stream:
        """An answer with drafts."""
        return self._generator.stream(ids, params, INHERIT)

    def plain(self, ids: list[int], params: SamplingParams) -> Completion:
        """The answer without."""
        return self._generator.complete([ids], [params], "none")[0]

    def learn(self, plain: Completion) -> None:
        """Tell a synthetic drafter what the answer is."""
        if self._synthetic is not None:
            self._synthetic.text = plain.prompt_token_ids + plain.token_ids
