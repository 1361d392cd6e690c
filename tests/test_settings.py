"""One table of flags and variables: documented whole, flags over environment over defaults."""

from pathlib import Path

import pytest

from specrt.errors import OptionError
from specrt.options import SpecOptions
from specrt.settings import ABLATIONS, SETTINGS, SPEC, SPEC_DRAFT, SPECULATION, spec_options

DOCS = Path(__file__).parents[1] / "docs" / "settings.md"


@pytest.mark.parametrize("setting", SETTINGS + ABLATIONS, ids=lambda setting: setting.name)
def test_the_documentation_is_the_table(setting):
    flags, takes = (setting.flag,), setting.expected
    if setting is SPEC:
        flags, takes = ("--spec", "--no-spec"), f"nothing (a variable: {setting.expected})"
    names = [
        ", ".join(f"`{name}`" for name in some) or "-"
        for some in (flags, setting.aliases, setting.variables)
    ]
    row = " | ".join((*names, takes, setting.default, setting.help))
    assert f"| {row} |" in DOCS.read_text().splitlines()


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for setting in SPECULATION:
        for variable in setting.variables:
            monkeypatch.delenv(variable, raising=False)


def test_defaults():
    assert spec_options() == SpecOptions()


@pytest.mark.parametrize("variable", SPEC_DRAFT.variables)
def test_flags_over_environment_over_defaults(variable, monkeypatch):
    monkeypatch.setenv(variable, "5")
    assert spec_options().num_draft == 5
    assert spec_options({"num_draft": 7}).num_draft == 7


def test_the_first_variable_wins(monkeypatch):
    monkeypatch.setenv("TS_MTP_DRAFT", "3")
    monkeypatch.setenv("SPECRT_SPEC_DRAFT", "4")
    assert spec_options().num_draft == 4


def test_switching_off(monkeypatch):
    monkeypatch.setenv("TS_MTP_SPEC", "0")
    assert spec_options().type == "none"
    assert spec_options({"spec": True}).type == "auto"


@pytest.mark.parametrize(
    ("variable", "text"),
    [("SPECRT_SPEC_DRAFT", "0"), ("TS_SPEC_PMIN", "nan"), ("SPECRT_SPEC", "maybe")],
)
def test_a_wrong_variable_is_named(variable, text, monkeypatch):
    monkeypatch.setenv(variable, text)
    with pytest.raises(OptionError, match=f"{variable} = '{text}'"):
        spec_options()
