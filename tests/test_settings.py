"""Settings: one table for flags, environment and documentation; flags win over environment."""

import re
from pathlib import Path

import pytest

from specrt.errors import OptionError
from specrt.settings import SETTINGS, SPEC_DRAFT, spec_options

DOCS = Path(__file__).parent.parent / "docs" / "settings.md"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for setting in SETTINGS:
        for variable in setting.variables:
            monkeypatch.delenv(variable, raising=False)


def test_defaults():
    options = spec_options()
    assert (options.type, options.num_draft, options.pmin) == ("auto", None, None)


@pytest.mark.parametrize("prefix", ["SPECRT_SPEC", "TS_SPEC", "TS_MTP"])
def test_environment_wins_over_defaults_and_flags_over_it(monkeypatch, prefix):
    monkeypatch.setenv(f"{prefix}_DRAFT", "5")
    monkeypatch.setenv(f"{prefix}_PMIN", "0.5")
    monkeypatch.setenv(f"{prefix}_TYPE", "ngram")
    options = spec_options({"num_draft": 7, "pmin": None})
    assert (options.type, options.num_draft, options.pmin) == ("ngram", 7, 0.5)


def test_the_first_prefix_wins(monkeypatch):
    monkeypatch.setenv("TS_MTP_DRAFT", "3")
    monkeypatch.setenv("TS_SPEC_DRAFT", "4")
    assert spec_options().num_draft == 4
    monkeypatch.setenv("SPECRT_SPEC_DRAFT", "5")
    assert spec_options().num_draft == 5


@pytest.mark.parametrize("variable", ["SPECRT_SPEC", "TS_SPEC", "TS_MTP_SPEC"])
def test_the_switch(monkeypatch, variable):
    monkeypatch.setenv(variable, "off")
    assert spec_options().type == "none"
    assert spec_options({"type": "ngram"}).type == "ngram"
    assert spec_options({"spec": True}).type == "auto"
    monkeypatch.setenv(variable, "1")
    assert spec_options().type == "auto"
    assert spec_options({"spec": False}).type == "none"
    assert spec_options({"spec": False, "type": "ngram"}).type == "none"


def test_a_given_switch_outweighs_a_type_in_the_environment(monkeypatch):
    monkeypatch.setenv("SPECRT_SPEC_TYPE", "none")
    assert spec_options().type == "none"
    assert spec_options({"spec": True}).type == "auto"


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("SPECRT_SPEC", "maybe"),
        ("TS_SPEC_DRAFT", "0"),
        ("TS_SPEC_DRAFT", "65"),
        ("TS_MTP_DRAFT", "three"),
        ("SPECRT_SPEC_PMIN", "1.5"),
        ("SPECRT_SPEC_PMIN", "nan"),
    ],
)
def test_a_bad_variable_is_named(monkeypatch, variable, text):
    monkeypatch.setenv(variable, text)
    with pytest.raises(OptionError, match=rf"{variable} = '{text}': expected "):
        spec_options()


def test_an_empty_variable_counts_as_unset():
    assert SPEC_DRAFT.from_environment({"SPECRT_SPEC_DRAFT": "", "TS_SPEC_DRAFT": "6"}) == 6


def test_the_documentation_has_the_table():
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("| `--")]
    documented = [re.findall(r"`([^`]+)`", row.split("|")[1]) for row in rows]
    expected = [
        [s.flag, *(["--no-spec"] if s.name == "spec" else []), *s.aliases] for s in SETTINGS
    ]
    assert documented == expected
    for row, setting in zip(rows, SETTINGS, strict=True):
        assert re.findall(r"`([^`]+)`", row.split("|")[2]) == list(setting.variables)
