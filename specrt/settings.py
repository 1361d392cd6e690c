"""Flags and environment variables: one table, so that they cannot differ."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, get_args

from specrt.assets import TINY, TINY_DRAFTER
from specrt.errors import OptionError
from specrt.ops import DeviceName, KVType
from specrt.options import MAX_DRAFT, SpecOptions

PREFIXES: Final = ("SPECRT_SPEC", "TS_SPEC", "TS_MTP")
"""Of environment variables; where several are set, the first wins."""

KV_TYPES: Final[tuple[str, ...]] = get_args(KVType)
DEVICES: Final[tuple[str, ...]] = get_args(DeviceName)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting with all its spellings.

    Args:
        name: the option that it sets.
        flag: on the command line.
        aliases: older flags.
        variables: of the environment, the first of them the strongest.
        parse: text to value.
        expected: what ``parse`` takes, for the error.
        default: what is used where nothing is given.
        help: one line.
        metavar: stands for a value in the help.
    """

    name: str
    flag: str
    aliases: tuple[str, ...]
    variables: tuple[str, ...]
    parse: Callable[[str], Any]
    expected: str
    default: str
    help: str
    metavar: str = "N"

    def value(self, text: str, source: str) -> Any:
        """What a text says.

        Args:
            source: the flag or variable that holds it, for the error.

        Raises:
            OptionError: it says nothing that this setting takes.
        """
        try:
            return self.parse(text)
        except ValueError:
            raise OptionError(f"{source} = {text!r}: expected {self.expected}") from None

    def from_environment(self, environment: Mapping[str, str] | None = None) -> Any:
        """The value that the environment gives, None if it gives none.

        Raises:
            OptionError: the variable holds something else.
        """
        environment = os.environ if environment is None else environment
        for variable in self.variables:
            if text := environment.get(variable):
                return self.value(text, variable)
        return None


def parse_switch(text: str) -> bool:
    """1, true, on, yes or 0, false, off, no."""
    values = dict.fromkeys(("1", "true", "on", "yes"), True)
    values |= dict.fromkeys(("0", "false", "off", "no"), False)
    if text.strip().lower() not in values:
        raise ValueError(text)
    return values[text.strip().lower()]


def _within(kind: Callable[[str], Any], least: float, most: float) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        value = kind(text)
        if not least <= value <= most:  # NaN too
            raise ValueError(text)
        return value

    return parse


def _one_of(names: tuple[str, ...]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(text)
        return text

    return parse


def _variables(suffix: str) -> tuple[str, ...]:
    return tuple(prefix + suffix for prefix in PREFIXES)


SPEC: Final = Setting(
    "spec", "--spec", ("--mtp-spec",), ("SPECRT_SPEC", "TS_SPEC", "TS_MTP_SPEC"),
    parse_switch, "1 or 0", "on", "speculate; --no-spec decodes plainly",
)  # fmt: skip
SPEC_TYPE: Final = Setting(
    "type", "--spec-type", (), _variables("_TYPE"), str, "names joined by commas",
    "auto", "who drafts: auto, none, or names joined by commas", "NAME[,NAME]",
)  # fmt: skip
SPEC_DRAFT: Final = Setting(
    "num_draft", "--spec-draft", ("--mtp-draft",), _variables("_DRAFT"),
    _within(int, 1, MAX_DRAFT), f"an integer from 1 to {MAX_DRAFT}",
    "as the target prefers, else a block drafter's most, else 8", "most tokens of a draft",
)  # fmt: skip
SPEC_PMIN: Final = Setting(
    "pmin", "--spec-pmin", ("--mtp-pmin",), _variables("_PMIN"),
    _within(float, 0, 1), "a number from 0 to 1",
    "each algorithm's own, 0 for n-gram",
    "cut a draft before the first token less likely than this", "F",
)  # fmt: skip
DRAFT_MODEL: Final = Setting(
    "draft_model", "--draft-model", ("--spec-draft-model", "--mtp-draft-model"),
    ("SPECRT_DRAFT_MODEL", *_variables("_DRAFT_MODEL")), str, "a path or a name", "none",
    f"a drafter's file, or {TINY_DRAFTER}, which comes with specrt for {TINY}", "FILE",
)  # fmt: skip
TARGET_DRAFT_MODELS: Final[Mapping[str, str]] = MappingProxyType(
    {"qwen35": "TS_QWEN35_DFLASH", "muse-glimmer": "TS_MUSE_GLIMMER_DFLASH"}
)
"""By a target's architecture: a variable like those of ``DRAFT_MODEL``, of no other target."""
DRAFT_IDS: Final = Setting(
    "draft_ids", "--draft-ids", ("--spec-draft-ids",), _variables("_DRAFT_IDS"), str, "a path",
    "all", "a file of the only ids that a draft head guesses, as count-ids prints it", "FILE",
)  # fmt: skip
CONTEXT: Final = Setting(
    "context", "--context", (), (), _within(int, 1, float("inf")), "an integer >= 1",
    "the model's, at most 8192", "positions of a sequence",
)  # fmt: skip
THREADS: Final = Setting(
    "threads", "--threads", (), (), _within(int, 1, 256), "an integer from 1 to 256",
    "as many as the process may use", "threads of the CPU",
)  # fmt: skip
KV_TYPE: Final = Setting(
    "kv_type", "--kv-type", (), (), _one_of(KV_TYPES), ", ".join(KV_TYPES),
    "f16", "how keys and values are stored", "TYPE",
)  # fmt: skip
DEVICE: Final = Setting(
    "device", "--device", (), (), _one_of(DEVICES), ", ".join(DEVICES),
    "auto", "where to compute", "NAME",
)  # fmt: skip

GRAPH_BUDGET: Final = Setting(
    "graph_budget", "--graph-budget", (),
    ("SPECRT_VERIFY_CACHE_BUDGET_MB", "TS_Q35_VERIFY_CACHE_BUDGET_MB"),
    _within(int, 0, 2**20), "MiB from 0 to 1048576", "256",
    "device memory of CUDA graphs, 0 for none", "MIB",
)  # fmt: skip


def _ablation(name: str, variables: tuple[str, str], default: str, help: str) -> Setting:
    flag = f"--{name.replace('_', '-')}"
    return Setting(name, flag, (), variables, parse_switch, "1 or 0", default, help, "0|1")


VERIFY_SNAPSHOTS: Final = _ablation(
    "verify_snapshots", ("SPECRT_VERIFY_SNAPSHOTS", "TS_Q35_VERIFY_SNAPSHOTS"),
    "neither: rows are logged",
    "take recurrent rows back by a state of each (1), or by a copy and forwarding anew (0)",
)  # fmt: skip
MTP_FOLD_CATCHUP: Final = _ablation(
    "mtp_fold_catchup", ("SPECRT_MTP_FOLD_CATCHUP", "TS_MTP_FOLD_CATCHUP"), "1",
    "a draft head takes kept rows in with the next draft's first (1), or by a call of theirs (0)",
)  # fmt: skip
MTP_DRAFT_PROGRAM: Final = _ablation(
    "mtp_draft_program", ("SPECRT_MTP_DRAFT_PROGRAM", "TS_Q35_MTP_DRAFT_PERSIST"), "1",
    "a draft head's passes are programs (1), or plain calls of ops (0)",
)  # fmt: skip
VERIFY_DEFER_STATE: Final = _ablation(
    "verify_defer_state", ("SPECRT_VERIFY_DEFER_STATE", "TS_Q35_VERIFY_DEFER_STATE"), "1",
    "a plain step leaves its row to the next one to apply (1), or writes the state itself (0)",
)  # fmt: skip


def _attribution(name: str, help: str) -> Setting:
    suffix = f"DFLASH_{name.upper()}"
    variables = (f"SPECRT_{suffix}", f"TS_{suffix}")
    return Setting(f"dflash_{name}", "", (), variables, parse_switch, "1 or 0", "1", help)


DFLASH_SELECTOR: Final = _attribution(
    "selector",
    "0: a DFlash2 drafter drafts each row's likeliest id, without its selector",
)
DFLASH_CONV: Final = _attribution("conv", "0: its convolutions are left out")
DFLASH_FUSED: Final = _attribution(
    "fused", "0: no programs, and what only block drafters do is computed by the reference"
)
DFLASH: Final = (DFLASH_SELECTOR, DFLASH_CONV, DFLASH_FUSED)
"""What parts of a block drafter are worth: variables only, read where its weights are loaded."""

SPECULATION: Final = (SPEC, SPEC_TYPE, SPEC_DRAFT, SPEC_PMIN, DRAFT_MODEL, DRAFT_IDS)
MODEL: Final = (CONTEXT, THREADS, KV_TYPE, DEVICE, GRAPH_BUDGET)
SETTINGS: Final = SPECULATION + MODEL
ABLATIONS: Final = (VERIFY_SNAPSHOTS, MTP_FOLD_CATCHUP, MTP_DRAFT_PROGRAM, VERIFY_DEFER_STATE)
"""Of ``python -m specrt.bench ablations`` alone, which compares what they ask for."""


def draft_model_for(architecture: str, environment: Mapping[str, str] | None = None) -> str | None:
    """The drafter's file that the environment names for a target, None if it names none."""
    environment = os.environ if environment is None else environment
    named = DRAFT_MODEL.from_environment(environment)
    own = TARGET_DRAFT_MODELS.get(architecture, "")
    return named or environment.get(own) or None


def spec_options(given: Mapping[str, Any] | None = None) -> SpecOptions:
    """Speculation options: what was given, else the environment, else the defaults.

    A given type switches speculation on where only the environment switches it off, and a given
    switch outweighs a type of ``none`` in the environment.

    Args:
        given: values by a setting's name; None counts as not given.

    Raises:
        OptionError: a value is out of its range.
    """
    given = {name: value for name, value in (given or {}).items() if value is not None}
    values: dict[str, Any] = {}
    for setting in (SPEC, SPEC_TYPE, SPEC_DRAFT, SPEC_PMIN):
        value = given.get(setting.name)
        values[setting.name] = setting.from_environment() if value is None else value
    switch = values.pop("spec")
    if switch is False and ("spec" in given or "type" not in given):
        values["type"] = "none"
    elif given.get("spec") and "type" not in given and values["type"] == "none":
        values["type"] = None
    return SpecOptions(**{name: value for name, value in values.items() if value is not None})
