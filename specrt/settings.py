"""Flags and environment variables: one table, so that they cannot differ."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from specrt.errors import OptionError
from specrt.options import SpecOptions

PREFIXES: Final = ("SPECRT_SPEC", "TS_SPEC", "TS_MTP")
"""Of environment variables; where several are set, the first wins."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting with all its spellings.

    Args:
        name: the option that it sets.
        flag: on the command line.
        aliases: older flags.
        suffix: of the environment variables, behind the prefixes.
        parse: text to value.
        expected: what ``parse`` takes, for the error.
        help: one line.
    """

    name: str
    flag: str
    aliases: tuple[str, ...]
    suffix: str
    parse: Callable[[str], Any]
    expected: str
    help: str

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables, the first of them the strongest."""
        return tuple(prefix + self.suffix for prefix in PREFIXES)

    def from_environment(self, environment: Mapping[str, str] | None = None) -> Any:
        """The value that the environment gives, None if it gives none.

        Raises:
            OptionError: the variable holds something else.
        """
        environment = os.environ if environment is None else environment
        for variable in self.variables:
            text = environment.get(variable)
            if text:
                try:
                    return self.parse(text)
                except ValueError:
                    raise OptionError(f"{variable} = {text!r}: expected {self.expected}") from None
        return None


def parse_switch(text: str) -> bool:
    """1, true, on, yes or 0, false, off, no."""
    values = dict.fromkeys(("1", "true", "on", "yes"), True)
    values |= dict.fromkeys(("0", "false", "off", "no"), False)
    if text.strip().lower() not in values:
        raise ValueError(text)
    return values[text.strip().lower()]


SPEC: Final = Setting(
    "spec", "--spec", ("--mtp-spec",), "", parse_switch, "1 or 0", "speculate (or --no-spec)"
)
SPEC_TYPE: Final = Setting(
    "type", "--spec-type", (), "_TYPE", str, "names joined by commas",
    "who drafts: auto, none, or names joined by commas",
)  # fmt: skip
SPEC_DRAFT: Final = Setting(
    "num_draft", "--spec-draft", ("--mtp-draft",), "_DRAFT", int, "an integer from 1 to 64",
    "most tokens of a draft",
)  # fmt: skip
SPEC_PMIN: Final = Setting(
    "pmin", "--spec-pmin", ("--mtp-pmin",), "_PMIN", float, "a number from 0 to 1",
    "cut a draft before the first token less likely than this",
)  # fmt: skip
DRAFT_MODEL: Final = Setting(
    "draft_model", "--draft-model", ("--spec-draft-model", "--mtp-draft-model"), "_DRAFT_MODEL",
    str, "a path", "a drafter's file",
)  # fmt: skip
SETTINGS: Final = (SPEC, SPEC_TYPE, SPEC_DRAFT, SPEC_PMIN, DRAFT_MODEL)


def spec_options(given: Mapping[str, Any] | None = None) -> SpecOptions:
    """Speculation options: what was given, else the environment, else the defaults.

    Args:
        given: values by a setting's name; None counts as not given.

    Raises:
        OptionError: a value is out of its range.
    """
    values: dict[str, Any] = {}
    for setting in (SPEC, SPEC_TYPE, SPEC_DRAFT, SPEC_PMIN):
        value = (given or {}).get(setting.name)
        values[setting.name] = setting.from_environment() if value is None else value
    switched_on = values.pop("spec")
    if switched_on is False:
        values["type"] = "none"
    return SpecOptions(**{name: value for name, value in values.items() if value is not None})
