"""One table of flags and variables: documented whole, flags over environment over defaults."""

from pathlib import Path

import pytest

from specrt.errors import OptionError
from specrt.options import SpecOptions
from specrt.settings import (
    ABLATIONS,
    DFLASH,
    SETTINGS,
    SPEC,
    SPEC_DRAFT,
    SPECULATION,
    TARGET_DRAFT_MODELS,
    draft_model_for,
    spec_options,
)
from tests.models_on_disk import golden_path, load_golden

DOCS = Path(__file__).parents[1] / "docs" / "settings.md"


@pytest.mark.parametrize("setting", SETTINGS + ABLATIONS + DFLASH, ids=lambda setting: setting.name)
def test_the_documentation_is_the_table(setting):
    flags, takes = (setting.flag,), setting.expected
    if setting is SPEC:
        flags, takes = ("--spec", "--no-spec"), f"nothing (a variable: {setting.expected})"
    names = [
        ", ".join(f"`{name}`" for name in some if name) or "-"
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


@pytest.mark.parametrize(("architecture", "variable"), TARGET_DRAFT_MODELS.items())
def test_a_drafter_of_one_architecture_only(architecture, variable):
    assert f"`{variable}`" in DOCS.read_text()
    environment = {variable: "a.gguf", "SPECRT_DRAFT_MODEL": ""}
    assert draft_model_for(architecture, environment) == "a.gguf"
    assert draft_model_for("llama", environment) is None
    others = set(TARGET_DRAFT_MODELS) - {architecture}
    assert {draft_model_for(other, environment) for other in others} == {None}
    environment["TS_MTP_DRAFT_MODEL"] = "b.gguf"
    assert draft_model_for(architecture, environment) == draft_model_for("llama", environment)
    environment["SPECRT_DRAFT_MODEL"] = "c.gguf"
    assert draft_model_for(architecture, environment) == "c.gguf"


def test_loading_takes_the_drafter_that_the_environment_names(monkeypatch):
    monkeypatch.setenv("TS_QWEN35_DFLASH", str(golden_path("dflash-qwen35")))
    llm = load_golden("qwen35", context=64)
    assert llm.head_file.path == golden_path("dflash-qwen35")
    assert load_golden("qwen3", context=64).head_file.path == golden_path("qwen3")
