"""Flags: older spellings, flags over environment, errors that name what is expected."""

from pathlib import Path

import pytest

from specrt.__main__ import main, parser
from specrt.cli import flags
from specrt.settings import SETTINGS

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for setting in SETTINGS:
        for variable in setting.variables:
            monkeypatch.delenv(variable, raising=False)


def spec_of(*arguments):
    return flags.spec_from(parser().parse_args(["generate", "-p", "x", *arguments]))


def cli(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_speculation_flags():
    options = spec_of("--spec-type", "ngram", "--spec-draft", "12", "--spec-pmin", "0.25")
    assert (options.type, options.num_draft, options.pmin) == ("ngram", 12, 0.25)
    assert spec_of("--no-spec").type == "none"


def test_older_spellings():
    options = spec_of("--mtp-spec", "--mtp-draft", "4", "--mtp-pmin", "0.5")
    assert (options.type, options.num_draft, options.pmin) == ("auto", 4, 0.5)
    assert spec_of("--mtp-spec", "0").type == "none"
    assert spec_of("--mtp-spec", "1").type == "auto"
    for flag in ("--draft-model", "--spec-draft-model", "--mtp-draft-model"):
        args = parser().parse_args(["verify-lossless", flag, "d.gguf"])
        assert args.draft_model == "d.gguf"


def test_flags_win_over_environment(monkeypatch):
    monkeypatch.setenv("SPECRT_SPEC_DRAFT", "9")
    monkeypatch.setenv("TS_MTP_SPEC", "0")
    assert (spec_of().type, spec_of().num_draft) == ("none", 9)
    options = spec_of("--spec", "--spec-draft", "2")
    assert (options.type, options.num_draft) == ("auto", 2)


def test_sampling_flags():
    args = parser().parse_args(
        ["chat", "-n", "7", "--temperature", "0.5", "--top-k", "9", "--stop", "a", "--stop", "b"]
    )
    params = flags.sampling_params(args)
    assert (params.max_tokens, params.temperature, params.top_k) == (7, 0.5, 9)
    assert params.stop == ("a", "b") and params.seed is None and not params.ignore_eos


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "--spec-draft", "65", "-p", "x"], "got '65', expected an integer from 1"),
        (["generate", "--spec-pmin", "2", "-p", "x"], "expected a number from 0 to 1"),
        (["generate", "--temperature", "-1", "-p", "x"], "temperature = -1.0: expected"),
        (["generate", "--kv-type", "f8", "-p", "x"], "expected f16, f32, q8_0"),
        (["generate"], "no prompt: expected -p TEXT"),
        (["generate", "-p", "x", "-f", "y"], "not allowed with"),
        (["generate", "missing.gguf", "-p", "x"], "missing.gguf"),
        (["generate", "no-such-model", "-p", "x"], "smollm2-135m, gemma3-270m"),
        (["pull", "no-such-model"], "expected one of smollm2-135m"),
        (["inspect", str(ROOT / "pyproject.toml")], "pyproject.toml"),
        (["nonsense"], "invalid choice"),
        ([], "COMMAND"),
    ],
)
def test_errors_are_one_line_and_status_2(capsys, arguments, message):
    status, out, err = cli(capsys, *arguments)
    assert status == 2 and out == "" and message in err
    assert err.startswith("error: ") and "Traceback" not in err


def test_no_model_names_the_pull_command(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("SPECRT_CACHE", str(tmp_path))
    status, _, err = cli(capsys, "generate", "-p", "x")
    assert status == 2 and "python -m specrt pull smollm2-135m" in err
