"""Commands from arguments to exit status, on a tiny model."""

import pytest

from specrt.__main__ import main
from tests.models_on_disk import golden_path
from tests.tiny_model import write_tiny_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> str:
    return str(write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf"))


def test_generate_writes_the_text_and_one_line_about_it(tiny, capsys):
    assert main(["generate", tiny, "-p", "the rain", "-n", "20", "--ignore-eos"]) == 0
    out, err = capsys.readouterr()
    assert len(out) > 5
    assert "ngram" in err
    assert main(["generate", tiny, "-p", "the rain", "-n", "20", "--ignore-eos", "--no-spec"]) == 0
    plain, err = capsys.readouterr()
    assert plain == out
    assert "plain" in err


def test_show_drafts_has_a_legend(tiny, capsys):
    arguments = ["generate", tiny, "-p", "the the the the", "--raw", "-n", "30", "--show-drafts"]
    assert main(arguments) == 0
    assert "corrected" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags",
    [
        ["--spec-draft", "3", "--spec-type", "ngram", "--spec-pmin", "0.5"],
        ["--mtp-spec", "--mtp-draft", "3", "--mtp-pmin", "0.5"],
        ["--mtp-spec", "0"],
        ["--context", "64", "--threads", "1", "--kv-type", "q8_0", "--device", "cpu"],
        ["--temperature", "0.8", "--top-k", "5", "--top-p", "0.9", "--seed", "1", "--stop", "x"],
    ],
)
def test_flags(tiny, flags, capsys):
    assert main(["generate", tiny, "-p", "the", "-n", "4", *flags]) == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["generate", "missing.gguf", "-p", "x"], "missing.gguf"),
        (["generate", "-n", "3"], "no prompt"),
        (["generate", "TINY", "-p", "x", "--spec-type", "magic"], "magic"),
        (["generate", "TINY", "-p", "x", "--spec-draft", "65"], "1 to 64"),
        (["generate", "TINY", "-p", "x", "--temperature", "-1"], "temperature"),
        (["generate", "TINY", "-p", "x", "--draft-model", "TINY"], "expected a drafter"),
        (["generate", "TINY", "-p", "x" * 600], "context"),
        (["generate", "TINY", "--frobnicate"], "frobnicate"),
        (["inspect", "missing.gguf"], "missing.gguf"),
        (["pull", "no-such-model"], "smollm2-135m"),
        (["nonsense"], "nonsense"),
    ],
)
def test_errors_are_one_line_and_status_2(tiny, arguments, told, capsys):
    arguments = [tiny if word == "TINY" else word for word in arguments]
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert told in err
    assert "Traceback" not in err


def test_inspect_shows_the_memory_plan(tiny, capsys):
    assert main(["inspect", tiny]) == 0
    out = capsys.readouterr().out
    assert "llama" in out
    assert "KV per 1k tokens" in out


def test_ctrl_c_is_130(tiny, monkeypatch, capsys):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("specrt.llm.load", interrupt)
    assert main(["generate", tiny, "-p", "x"]) == 130


@pytest.mark.parametrize("which", ["text", "ids"])
def test_verify_lossless(tiny, which, capsys):
    path = tiny if which == "text" else str(golden_path("llama"))
    assert main(["verify-lossless", path, "-n", "24"]) == 0
    assert "lossless" in capsys.readouterr().out


def test_verify_lossless_finds_a_difference(tiny, monkeypatch, capsys):
    """A sampler whose draws depend on how often it was asked breaks the law."""
    from specrt.speculative.request import WindowDrawer

    asked = [0]
    honest = WindowDrawer.token

    def forgetful(self, row, position):
        asked[0] += 1
        token = honest(self, row, position)
        return (token + (asked[0] % 50 == 0)) % 256

    monkeypatch.setattr(WindowDrawer, "token", forgetful)
    assert main(["verify-lossless", tiny, "-n", "24"]) == 1
    assert "differs from plain" in capsys.readouterr().out


def test_chat_answers_lines_until_the_input_ends(tiny, monkeypatch, capsys):
    lines = iter(["hello", "", "again"])

    def read(prompt=""):
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", read)
    assert main(["chat", tiny, "-n", "8", "--ignore-eos"]) == 0
    assert capsys.readouterr().err.count("8 tokens") == 2
