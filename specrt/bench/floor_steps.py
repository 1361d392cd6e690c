"""Steps, steps without a part, and the machine's own speed, timed in the same rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import numpy as np

from specrt.bench.machine_speed import (
    CACHES,
    Speed,
    float_speed,
    int_speed,
    largest_cache,
    read_speed,
)
from specrt.bench.timing import WrongResultError, rounds_of
from specrt.bench.touched import touched_by
from specrt.gguf.reader import GGUFFile
from specrt.host import HostOps
from specrt.models import load_trunk
from specrt.models.decoder import Decoder
from specrt.ops import KVType, Ops
from specrt.state.messages import Window
from specrt.state.sequence import Sequence as TokenSequence

Mode = Literal["greedy", "logits", "without head", "without attention", "prefill"]
"""What is computed: ids; ids and all logits; ids of what was there before; ids of a sum of less;
keys and values alone."""

MEMORY, MODEL = "memory", "as much as a step"
"""What is read: far more than the caches hold, or as many bytes as a plain step touches."""


@dataclass(frozen=True, slots=True)
class StepKey:
    """A verify, or a prefill, of so many rows behind so many tokens."""

    rows: int
    cached: int
    mode: Mode


@dataclass(frozen=True, slots=True)
class SpeedKey:
    """What the machine does alone, on all threads of the model or on one."""

    what: str
    threads: int


Round = dict[StepKey | SpeedKey, float]
"""Seconds of each."""


class Without:
    """Another op set in which some ops do nothing.

    A model that is recorded over it computes nonsense in the time that the other ops take: what an
    op would have written is zeros, or stays.
    """

    def __init__(self, ops: Ops, *names: str) -> None:
        self._ops = ops
        self._names = names

    def __getattr__(self, name: str) -> Any:
        return _nothing if name in self._names else getattr(self._ops, name)


def _nothing(*arguments: Any, **keywords: Any) -> None:
    """In place of an op."""


class FloorSteps:
    """One model in its whole form and without a part, and what bounds it.

    Args:
        gguf: the model.
        ops: where it runs.
        context: positions of each sequence.
        kv_type: how keys and values are stored.
        contexts: tokens before the rows, a sequence for each.
        rows: of each verify.
        prefill: tokens of the prefill.

    Attributes:
        speeds: what the machine does, and how much of it in a call.
    """

    def __init__(
        self,
        gguf: GGUFFile,
        ops: HostOps,
        context: int,
        kv_type: KVType,
        contexts: Sequence[int],
        rows: Sequence[int],
        prefill: int,
    ) -> None:
        trunk = load_trunk(gguf, ops, context)
        self._tokens = np.random.default_rng(0).integers(0, trunk.dims.vocab_size, context).tolist()
        options = {"context": context, "kv_type": kv_type, "max_sequences": len(contexts) + 1}
        whole = Decoder(trunk, ops, **options)  # type: ignore[arg-type]
        self._targets: dict[Mode, Decoder] = {"greedy": whole, "logits": whole}
        for part in ("head", "attention"):
            fewer = cast(Ops, Without(ops, part))
            mode = cast(Mode, f"without {part}")
            self._targets[mode] = Decoder(trunk, fewer, **options)  # type: ignore[arg-type]
        self._sequences = {cached: self._filled(cached) for cached in contexts}
        self._prefilled = whole.open_sequence()
        self._rows, self._num_prefill = list(rows), prefill
        parts = touched_by(gguf, kv_type, contexts[0], rows=1)
        self.speeds = make_speeds(_teams(ops), sum(part.num_bytes for part in parts.values()))

    def check(self) -> None:
        """Check that the rows of every verify, and of the prefill, are those of the largest verify.

        Raises:
            WrongResultError: they are not, in the whole model.
        """
        for cached in self._sequences:
            for mode in ("greedy", "logits"):
                most = self._ids(max(self._rows), cached, mode)
                for rows in self._rows:
                    if self._ids(rows, cached, mode) != most[:rows]:
                        raise WrongResultError(
                            f"{rows} rows behind {cached} tokens, {mode}: other ids than among "
                            f"{max(self._rows)} rows"
                        )
        whole, few = (self._left_by(chunk) for chunk in (self._num_prefill, max(self._rows)))
        if any((whole[name] != array).any() for name, array in few.items()):
            raise WrongResultError(
                f"a prefill of {self._num_prefill} tokens: other keys, values or logits than of "
                f"{max(self._rows)} rows at a time"
            )

    def rounds(self, number: int) -> Iterator[Round]:
        """So many rounds of everything, once all programs are recorded."""
        calls: dict[StepKey | SpeedKey, Callable[[], object]] = {
            key: speed.run for key, speed in self.speeds.items()
        }
        for cached in self._sequences:
            for rows in self._rows:
                for mode in self._targets:
                    calls[StepKey(rows, cached, mode)] = partial(self._verify, rows, cached, mode)
        calls[StepKey(self._num_prefill, 0, "prefill")] = partial(self._prefill, self._num_prefill)
        for _ in rounds_of(calls, 1):
            pass
        yield from rounds_of(calls, number)

    def _filled(self, cached: int) -> dict[Decoder, TokenSequence]:
        """A sequence of each target that has consumed so many tokens."""
        whole = self._targets["greedy"]
        sequences = {target: target.open_sequence() for target in set(self._targets.values())}
        for _ in whole.prefill(sequences[whole], self._tokens[:cached]):
            pass
        state = whole.export_state(sequences[whole])
        for target, sequence in sequences.items():
            if target is not whole:
                target.import_state(sequence, cached, state)
        return sequences

    def _prefill(self, chunk: int) -> None:
        """From nothing on, so many tokens in a call."""
        whole, tokens = self._targets["greedy"], self._tokens[: self._num_prefill]
        whole.rewind(self._prefilled, 0)
        for start in range(0, len(tokens), chunk):
            for _ in whole.prefill(self._prefilled, tokens[start : start + chunk]):
                pass

    def _left_by(self, chunk: int) -> dict[str, np.ndarray]:
        """Keys and values that the prefill leaves, and the logits of a row behind it.

        They tell of recurrent states too, which may have taken rows in or have them pending.
        """
        self._prefill(chunk)
        whole = self._targets["greedy"]
        state = whole.export_state(self._prefilled)
        window = Window(self._prefilled, self._tokens[:1], self._num_prefill)
        logits = whole.verify([window], logits=True).logits
        assert logits is not None
        return {name: x for name, x in state.items() if name[0] in "kv"} | {"": logits.copy()}

    def _verify(self, rows: int, cached: int, mode: Mode) -> np.ndarray:
        target = self._targets[mode]
        tokens = self._tokens[cached : cached + rows]
        window = Window(self._sequences[cached][target], tokens, cached)
        return target.verify([window], logits=mode == "logits").ids

    def _ids(self, rows: int, cached: int, mode: Mode) -> list[int]:
        return self._verify(rows, cached, mode).tolist()


def make_speeds(teams: Iterable[HostOps], num_bytes: int) -> dict[SpeedKey, Speed]:
    """What each team does of everything.

    Args:
        num_bytes: that a step touches.
    """
    speeds: dict[SpeedKey, Speed] = {}
    for team in teams:
        made = {
            MEMORY: read_speed(team, CACHES * largest_cache()),
            MODEL: read_speed(team, num_bytes),
            "integers": int_speed(team),
            "floats": float_speed(team),
        }
        speeds |= {SpeedKey(what, team.threads): speed for what, speed in made.items()}
    return speeds


def _teams(ops: HostOps) -> list[HostOps]:
    """The model's own, and where that has several threads one of a single thread."""
    return [ops, HostOps(1, ops.level)][: 1 + (ops.threads > 1)]
