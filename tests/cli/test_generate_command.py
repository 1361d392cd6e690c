"""``generate``: the text on stdout, one line on stderr, and where the prompt comes from."""

import io
import sys

import pytest

from specrt.cli.generate import _show
from specrt.llm import load
from tests.models_on_disk import golden_path

LENGTH = ("-n", 24, "--ignore-eos")


def test_the_text_and_one_line_about_it(cli, model):
    status, out, err = cli("generate", model, "-p", "the the the", *LENGTH)
    assert status == 0 and len(out.strip()) > 5
    assert err.startswith("ngram: ") and "24 tokens at " in err and err.count("\n") == 1
    plain = cli("generate", model, "-p", "the the the", *LENGTH, "--no-spec")
    assert plain[1] == out and plain[2].startswith("plain (speculation is off)")


def test_who_declined_is_told(cli, model):
    arguments = ("generate", model, "-p", "the", *LENGTH, "--spec-type")
    assert cli(*arguments, "draft-head")[2].startswith("plain; draft-head: no draft head is")
    err = cli(*arguments, "ngram,draft-head")[2]
    assert err.startswith("ngram: ") and "; draft-head: no draft head is attached" in err


def test_the_template_is_used_unless_raw(cli, model, bare_model):
    arguments = ("-p", "an other", *LENGTH)
    runs = {
        name: cli("generate", file, *arguments, *more)[1]
        for name, file, more in (
            ("default", model, ()),
            ("chat", model, ("--chat",)),
            ("raw", model, ("--raw",)),
            ("system", model, ("--system", "the")),
            ("no think", model, ("--no-think",)),
            ("bare", bare_model, ()),
            ("bare raw", bare_model, ("--raw",)),
        )
    }
    assert runs["default"] == runs["chat"]
    assert runs["raw"] == runs["bare"] == runs["bare raw"]
    assert len({runs[name] for name in ("chat", "raw", "system", "no think")}) == 4


@pytest.mark.parametrize("flag", [["--chat"], ["--system", "x"], ["--think"], ["--no-think"]])
def test_what_needs_a_template_says_so(cli, bare_model, flag):
    status, _, err = cli("generate", bare_model, "-p", "x", *flag)
    assert status == 2 and "need a chat template" in err and "bare.gguf has none" in err


@pytest.mark.parametrize("flag", [["--system", "y"], ["--think"], ["--no-think"]])
def test_raw_takes_nothing_for_the_template(cli, model, flag):
    status, _, err = cli("generate", model, "-p", "x", "--raw", *flag)
    assert status == 2 and "--raw goes without" in err


def test_show_drafts_has_the_same_text_and_a_legend(cli, model):
    plain = cli("generate", model, "-p", "the", *LENGTH)
    status, out, err = cli("generate", model, "-p", "the", *LENGTH, "--show-drafts")
    assert status == 0 and out == plain[1]
    assert "corrected (after a wrong one)" in err and " plain" in err


@pytest.mark.parametrize("text", ["a\n\n  b\n", "tab\tand [red]markup[/]", " \n"])
def test_coloured_text_is_the_text(model, capsys, monkeypatch, text):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    llm = load(model, verbose=False)
    ids = llm.tokenizer.encode(text)

    class Told:
        """A stream of one accepted piece."""

        token_ids, origins = ids, ["accepted"] * len(ids)

        def __init__(self):
            self.text = text

    _show(llm, [Told()], True)
    out = capsys.readouterr().out
    assert "\x1b[32m" in out
    shown = out.replace("\x1b[32m", "").replace("\x1b[0m", "")
    assert shown == text.expandtabs(8)


def test_prompt_from_a_file(cli, model, tmp_path, monkeypatch):
    path = tmp_path / "prompt.txt"
    path.write_text("the end")
    typed = cli("generate", model, "-p", "the end", *LENGTH)
    assert cli("generate", model, "-f", path, *LENGTH)[1] == typed[1]
    monkeypatch.setattr(sys, "stdin", io.StringIO("the end"))
    assert cli("generate", model, "-f", "-", *LENGTH)[1] == typed[1]


def test_a_file_without_text_says_so(cli):
    status, _, err = cli("generate", golden_path("llama-quant"), "-p", "x")
    assert status == 2 and "no tokenizer" in err


def test_a_prompt_that_is_too_long(cli, model):
    status, _, err = cli("generate", model, "-p", "x" * 600)
    assert status == 2 and "context is 512" in err


def test_a_pipe_is_the_prompt_without_its_last_newline(cli, model, monkeypatch, tmp_path):
    typed = cli("generate", model, "-p", "the end", *LENGTH)[1]
    for text in ("the end", "the end\n", "the end\r\n"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        assert cli("generate", model, *LENGTH)[1] == typed
    path = tmp_path / "prompt.txt"
    path.write_bytes(b"the end\n\n")
    whole = cli("generate", model, "-p", "the end\n", *LENGTH, "--raw")[1]
    assert cli("generate", model, "-f", path, *LENGTH, "--raw")[1] == whole


def test_an_empty_prompt_is_told_before_a_model_is_loaded(cli, monkeypatch, tmp_path):
    path = tmp_path / "empty"
    path.write_text("\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    for arguments in (("-p", ""), ("-p", " \n"), ("-f", path), ("-f", "-"), ()):
        status, out, err = cli("generate", "missing.gguf", *arguments)
        assert (status, out) == (2, "") and err.startswith("error: ") and "prompt" in err
        assert err.count("\n") == 1


def test_a_command_holds_only_the_sequences_that_it_uses(cli, model, monkeypatch):
    loaded = []

    def remember(*arguments, **options):
        loaded.append(load(*arguments, **options))
        return loaded[-1]

    monkeypatch.setattr("specrt.llm.load", remember)
    monkeypatch.setattr(sys, "stdin", io.StringIO("/reset\n/reset\nthe\n"))
    assert cli("generate", model, "-p", "x", "-n", 2)[0] == 0
    assert "error" not in cli("chat", model, "-n", 2)[2]
    assert [llm.target.max_sequences for llm in loaded] == [1, 2]


def test_without_a_model_the_embedded_one_goes_on(cli):
    arguments = ("-p", "def __init__(self, name, value):\n", *LENGTH)
    status, out, err = cli("generate", *arguments)
    assert status == 0 and out.startswith("        self._name = value\n") and "24 tokens" in err
    assert cli("generate", "tiny", *arguments)[1] == out
    told = cli("generate", "-p", "x", "--chat")
    assert told[0] == 2 and "need a chat template" in told[2]
