"""What a caller can set: frozen options, checked when they are made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from specrt.errors import OptionError

MAX_DRAFT: Final = 64


def _check(holds: bool, name: str, got: object, expected: str) -> None:
    if not holds:
        raise OptionError(f"{name} = {got!r}: expected {expected}")


def _number(value: object, least: float, most: float) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and least <= value <= most
    )


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is drawn from the logits, and where a completion ends.

    Order: logit bias, penalties (repetition over prompt and output, presence and frequency over
    output), temperature, min-p, top-k, top-p, inverse CDF ascending by id. ``temperature`` 0 is
    greedy. ``logprobs`` n reports the emitted token's log probability and those of the n likeliest
    tokens, from the raw logits.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    max_tokens: int | None = None
    logprobs: int | None = None
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        object.__setattr__(self, "stop", stop)
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids))
        bias = MappingProxyType(dict(sorted(self.logit_bias.items())))
        object.__setattr__(self, "logit_bias", bias)
        most = math.inf
        for name, least, highest, expected in (
            ("temperature", 0, 1e6, "a finite number >= 0 (0 is greedy)"),
            ("top_k", 0, 2**31 - 1, "an integer >= 0 (0 is off)"),
            ("top_p", 1e-9, 1, "a number in (0, 1]"),
            ("min_p", 0, 1, "a number in [0, 1]"),
            ("repetition_penalty", 1e-6, 1e6, "a number > 0 (1 is off)"),
            ("presence_penalty", -1e6, 1e6, "a finite number"),
            ("frequency_penalty", -1e6, 1e6, "a finite number"),
            ("min_tokens", 0, most, "an integer >= 0"),
        ):
            _check(
                _number(getattr(self, name), least, highest), name, getattr(self, name), expected
            )
        for name, least, highest in (
            ("max_tokens", 1, most),
            ("logprobs", 0, 1000),
            ("seed", 0, 2**64 - 1),
        ):
            value = getattr(self, name)
            whole = isinstance(value, int) and _number(value, least, highest)
            _check(value is None or whole, name, value, f"None or an integer >= {least}")
        for name in ("top_k", "min_tokens"):
            value = getattr(self, name)
            _check(isinstance(value, int), name, value, "an integer")
        _check(all(isinstance(s, str) and s for s in stop), "stop", stop, "non-empty strings")
        for name in ("stop_token_ids", "logit_bias"):
            ids = getattr(self, name)
            ok = all(isinstance(i, int) and i >= 0 for i in ids)
            _check(ok, name, ids, "token ids >= 0")
        for value in bias.values():
            _check(not math.isnan(value), "logit_bias", value, "numbers")

    @property
    def greedy(self) -> bool:
        """True if the argmax of the raw logits is the drawn token."""
        return self.temperature == 0 and not self.changes_logits

    @property
    def changes_logits(self) -> bool:
        """True if a bias or a penalty changes the logits before the draw."""
        penalties = (self.presence_penalty, self.frequency_penalty)
        return bool(self.logit_bias) or self.repetition_penalty != 1 or any(penalties)


@dataclass(frozen=True, slots=True)
class SpecOptions:
    """Which speculator drafts, and how far.

    ``type`` is a registered name, several joined by commas (the first that proposes is used),
    ``auto`` or ``none``. None means: resolved per target and algorithm, and reported.
    """

    type: str = "auto"
    num_draft: int | None = None
    pmin: float | None = None
    governor: bool = True
    ngram_max: int = 8
    ngram_min: int = 2

    def __post_init__(self) -> None:
        whole = isinstance(self.num_draft, int) and _number(self.num_draft, 1, MAX_DRAFT)
        expected = f"None or an integer from 1 to {MAX_DRAFT}"
        _check(self.num_draft is None or whole, "num_draft", self.num_draft, expected)
        ok = self.pmin is None or _number(self.pmin, 0, 1)
        _check(ok, "pmin", self.pmin, "None or a number in [0, 1]")
        orders = (self.ngram_min, self.ngram_max)
        ok = all(isinstance(n, int) for n in orders) and 1 <= orders[0] <= orders[1] <= 16
        _check(
            ok, "ngram_min, ngram_max", orders, "integers with 1 <= ngram_min <= ngram_max <= 16"
        )
        ok = isinstance(self.type, str) and bool(self.names)
        _check(ok, "spec type", self.type, "'auto', 'none', or speculator names joined by commas")

    @property
    def names(self) -> tuple[str, ...]:
        """The names in ``type``."""
        return tuple(name.strip() for name in self.type.split(",") if name.strip())

    @classmethod
    def of(cls, spec: SpecOptions | str | None) -> SpecOptions:
        """Options from what a caller passed: a name is a type, None is off."""
        if isinstance(spec, SpecOptions):
            return spec
        return cls(type=spec if spec is not None else "none")
