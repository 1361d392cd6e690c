"""Flags: every spelling, over the environment, over defaults; wrong ones are one clear line."""

import pytest

from specrt.__main__ import parser
from specrt.cli import flags
from specrt.settings import SETTINGS


def spec_of(*arguments):
    return flags.spec_from(parser().parse_args(["generate", "-p", "x", *arguments]))


def test_speculation():
    options = spec_of("--spec-type", "ngram", "--spec-draft", "12", "--spec-pmin", "0.25")
    assert (options.type, options.num_draft, options.pmin) == ("ngram", 12, 0.25)
    assert spec_of("--no-spec").type == "none"
    assert spec_of().type == "auto"


def test_older_spellings():
    options = spec_of("--mtp-spec", "--mtp-draft", "4", "--mtp-pmin", "0.5")
    assert (options.type, options.num_draft, options.pmin) == ("auto", 4, 0.5)
    assert spec_of("--mtp-spec", "0").type == "none"
    assert spec_of("--mtp-spec", "1").type == "auto"
    assert spec_of("--mtp-spec=0").type == "none"
    assert spec_of("--spec-type", "none", "--mtp-spec").type == "none"
    for flag in ("--draft-model", "--spec-draft-model", "--mtp-draft-model"):
        args = parser().parse_args(["verify-lossless", flag, "d.gguf"])
        assert args.draft_model == "d.gguf"


@pytest.mark.parametrize("before", [["--mtp-spec"], ["--mtp-spec", "1"], ["--mtp-spec=1"]])
def test_the_older_switch_leaves_the_model_alone(before):
    args = parser().parse_args(["generate", *before, "m.gguf", "-p", "x"])
    assert (args.model, args.spec) == ("m.gguf", True)
    args = parser().parse_args(["generate", "-p", "x", *before, "--", "1"])
    assert (args.model, args.spec) == ("1", True)


def test_flags_win_over_the_environment(monkeypatch):
    monkeypatch.setenv("SPECRT_SPEC_DRAFT", "9")
    monkeypatch.setenv("TS_MTP_SPEC", "0")
    assert (spec_of().type, spec_of().num_draft) == ("none", 9)
    options = spec_of("--spec", "--spec-draft", "2")
    assert (options.type, options.num_draft) == ("auto", 2)


def test_sampling():
    args = parser().parse_args(
        ["chat", "-n", "7", "--temperature", "0.5", "--top-k", "9", "--stop", "a", "--stop", "b"]
    )
    params = flags.sampling_params(args)
    assert (params.max_tokens, params.temperature, params.top_k) == (7, 0.5, 9)
    assert params.stop == ("a", "b") and params.seed is None and not params.ignore_eos


@pytest.mark.parametrize("command", ["generate", "chat", "verify-lossless"])
def test_help_lists_every_setting_under_its_present_name_only(cli, capsys, command):
    with pytest.raises(SystemExit) as ended:
        cli(command, "--help")
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for setting in SETTINGS:
        assert setting.flag in text
        assert not any(alias in text for alias in setting.aliases)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--spec-draft", "3", "--spec-type", "ngram", "--spec-pmin", "0.5"],
        ["--mtp-spec", "--mtp-draft", "3", "--mtp-pmin", "0.5"],
        ["--mtp-spec", "0"],
        ["--context", "64", "--threads", "1", "--kv-type", "q8_0", "--device", "cpu"],
        ["--temperature", "0.8", "--top-k", "5", "--top-p", "0.9", "--seed", "1", "--stop", "x"],
        ["--repetition-penalty", "1.1", "--presence-penalty", "0.1", "--frequency-penalty", "0.2"],
    ],
)
def test_a_run_takes_them(cli, model, arguments):
    assert cli("generate", model, "-p", "the", "-n", 4, *arguments)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--spec-draft", "65"], "argument --spec-draft: got '65', expected an integer from 1 to"),
        (["--mtp-draft", "x"], "argument --mtp-draft: got 'x', expected an integer from 1"),
        (["--spec-pmin", "2"], "expected a number from 0 to 1"),
        (["--spec-type", "medusa"], "spec type 'medusa'"),
        (["--temperature", "-1"], "temperature = -1.0: expected"),
        (["--kv-type", "f8"], "expected f32, f16, q8_0"),
        (["--context", "513"], "context = 513"),
        (["--draft-model", "MODEL"], "expected a drafter"),
        (["--draft-model", "missing.gguf"], "missing.gguf"),
        (["--mtp-spec=2"], "argument --mtp-spec: got '2', expected 1 or 0"),
        (["--frobnicate"], "unrecognized arguments: --frobnicate"),
        (["--spec-d", "3"], "ambiguous option: --spec-d"),
    ],
)
def test_wrong_ones(cli, model, arguments, message):
    given = [model if word == "MODEL" else word for word in arguments]
    status, out, err = cli("generate", model, "-p", "x", *given)
    assert (status, out) == (2, "")
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err


def test_a_wrong_variable_is_named(cli, model, monkeypatch):
    monkeypatch.setenv("TS_MTP_DRAFT", "many")
    status, _, err = cli("generate", model, "-p", "x")
    assert status == 2 and err.startswith("error: TS_MTP_DRAFT = 'many': expected an integer")
