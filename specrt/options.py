"""What a caller can set: frozen options, checked when they are made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from operator import index
from typing import Final, SupportsIndex

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


def _ids(name: str, values: Iterable[SupportsIndex] | None) -> tuple[int, ...]:
    """Token ids as plain integers; NumPy's count too."""
    try:
        ids = tuple(index(value) for value in (() if values is None else values))
    except TypeError:
        ids = (-1,)
    _check(all(token >= 0 for token in ids), name, values, "token ids, integers >= 0")
    return ids


def _texts(name: str, values: Iterable[str] | None) -> tuple[str, ...]:
    """One string or several, or none."""
    try:
        texts = (values,) if isinstance(values, str) else tuple(values or ())
        ok = all(isinstance(text, str) and text.encode() for text in texts)
    except (TypeError, UnicodeEncodeError):  # not iterable, or half a surrogate pair
        texts, ok = (), False
    _check(ok, name, values, "non-empty strings that UTF-8 can hold")
    return texts


def _float(name: str, value: object) -> float:
    """A number as float, infinities included."""
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        number = math.nan
    _check(not math.isnan(number), name, value, "numbers")
    return number


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is drawn from the logits, and where a completion ends.

    Order: logit bias, penalties (repetition over prompt and output, presence and frequency over
    output), temperature, min-p, top-k, top-p, inverse CDF ascending by id. ``temperature`` 0 is
    greedy. ``logprobs`` n reports the emitted token's log probability and those of the n likeliest
    tokens, from the raw logits. Before ``min_tokens`` nothing but the end of the context ends it.
    ``stop`` and ``stop_token_ids`` become tuples, ``logit_bias`` a dict; None is none.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = field(default_factory=dict, hash=False)
    seed: int | None = None
    stop: str | Iterable[str] | None = ()
    stop_token_ids: Iterable[int] | None = ()
    min_tokens: int = 0
    max_tokens: int | None = None
    logprobs: int | None = None
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", _texts("stop", self.stop))
        object.__setattr__(self, "stop_token_ids", _ids("stop_token_ids", self.stop_token_ids))
        bias = self.logit_bias or {}
        _check(isinstance(bias, Mapping), "logit_bias", bias, "a mapping of token ids to numbers")
        places = _ids("logit_bias", bias)
        values = [_float("logit_bias", value) for value in bias.values()]
        object.__setattr__(self, "logit_bias", dict(sorted(zip(places, values, strict=True))))
        for name, least, highest, expected in (
            ("temperature", 0, 1e6, "a finite number >= 0 (0 is greedy)"),
            ("top_k", 0, 2**31 - 1, "an integer >= 0 (0 is off)"),
            ("top_p", 1e-9, 1, "a number in (0, 1]"),
            ("min_p", 0, 1, "a number in [0, 1]"),
            ("repetition_penalty", 1e-6, 1e6, "a number > 0 (1 is off)"),
            ("presence_penalty", -1e6, 1e6, "a finite number"),
            ("frequency_penalty", -1e6, 1e6, "a finite number"),
            ("min_tokens", 0, math.inf, "an integer >= 0"),
        ):
            value = getattr(self, name)
            _check(_number(value, least, highest), name, value, expected)
        for name, least, highest in (
            ("max_tokens", 1, math.inf),
            ("logprobs", 0, 1000),
            ("seed", 0, 2**64 - 1),
        ):
            value = getattr(self, name)
            whole = isinstance(value, int) and _number(value, least, highest)
            _check(value is None or whole, name, value, f"None or an integer >= {least}")
        for name in ("top_k", "min_tokens"):
            value = getattr(self, name)
            _check(isinstance(value, int), name, value, "an integer")
        fits = self.max_tokens is None or self.min_tokens <= self.max_tokens
        _check(fits, "min_tokens", self.min_tokens, f"at most max_tokens = {self.max_tokens}")

    @property
    def greedy(self) -> bool:
        """True if the argmax of the raw logits is the drawn token."""
        return self.temperature == 0 and not self.changes_logits

    @property
    def changes_logits(self) -> bool:
        """True if a bias or a penalty changes the logits before the draw."""
        return bool(self.logit_bias) or self.penalises

    @property
    def penalises(self) -> bool:
        """True if the ids of the history count in the draw."""
        penalties = (self.presence_penalty, self.frequency_penalty)
        return self.repetition_penalty != 1 or any(penalties)


@dataclass(frozen=True, slots=True)
class GovernorOptions:
    """The governor's constants, fitted by replay over texts, repetitions and several cost curves.

    Args:
        memory: what one more observation of a position leaves of the older ones' weight.
        idle_memory: what a draft that did not reach a position leaves of them.
        propose_memory: like ``memory``, for whether the drafter proposes at all.
        prior: the probability of a match before any was seen, or the gate's if that is more.
        prior_weight: how many observations outweigh the prior, and a position's neighbour.
        allowance: what drafting may lose per emitted token, in plain steps.
        first_credit: what it may lose at the beginning, in plain steps.
        most_credit: how much of what it saved it may lose again, in plain steps.
        margin: how much faster than plain decoding drafting must look.
        least_loss: what a draft that missed is taken to lose at least, in plain steps.
        probe: the tokens of a probe.
        row_slope: a row's cost before any was measured, in plain steps.
    """

    memory: float = 0.95
    idle_memory: float = 0.9
    propose_memory: float = 0.95
    prior: float = 0.4
    prior_weight: float = 1.5
    allowance: float = 0.011
    first_credit: float = 2.5
    most_credit: float = 64.0
    margin: float = 0.03
    least_loss: float = 0.25
    probe: int = 2
    row_slope: float = 0.12

    def __post_init__(self) -> None:
        shares = ("memory", "idle_memory", "propose_memory", "prior")
        for field_ in fields(self):
            name, value = field_.name, getattr(self, field_.name)
            most = 1.0 if name in shares else math.inf
            expected = "a number in [0, 1]" if name in shares else "a number >= 0"
            _check(_number(value, 0, most), name, value, expected)
        _check(self.prior_weight > 0, "prior_weight", self.prior_weight, "a number > 0")
        whole = isinstance(self.probe, int) and 1 <= self.probe <= MAX_DRAFT
        _check(whole, "probe", self.probe, f"an integer from 1 to {MAX_DRAFT}")


@dataclass(frozen=True, slots=True)
class SpecOptions:
    """Which speculator drafts, and how far.

    ``type`` is a registered name, several joined by commas (the first that proposes is used),
    ``auto`` or ``none``. None means: resolved per target and algorithm, and reported. The governor
    chooses how far to draft, step by step: on with its own options or with others, or off.
    """

    type: str = "auto"
    num_draft: int | None = None
    pmin: float | None = None
    governor: bool | GovernorOptions = True
    ngram_max: int = 8
    ngram_min: int = 2

    def __post_init__(self) -> None:
        whole = isinstance(self.num_draft, int) and _number(self.num_draft, 1, MAX_DRAFT)
        expected = f"None or an integer from 1 to {MAX_DRAFT}"
        _check(self.num_draft is None or whole, "num_draft", self.num_draft, expected)
        ok = self.pmin is None or _number(self.pmin, 0, 1)
        _check(ok, "pmin", self.pmin, "None or a number in [0, 1]")
        ok = isinstance(self.governor, bool | GovernorOptions)
        _check(ok, "governor", self.governor, "True, False or GovernorOptions")
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
