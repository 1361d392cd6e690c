"""``chat``: turns from stdin, what the slash commands do, what Ctrl-C leaves."""

import io
import sys

import pytest

from specrt.cli.chat import Chat
from specrt.llm import load
from specrt.options import SamplingParams
from specrt.stream import Stream


def type_in(monkeypatch, *lines):
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines) + "\n"))


def test_turns_keep_the_prefix_and_can_be_saved(cli, model, monkeypatch, tmp_path):
    saved = tmp_path / "talk"
    type_in(monkeypatch, "one", "", "two", f"/save {saved}", "/reset", f"/load {saved}", "/what")
    status, out, err = cli("chat", model, "-n", 6, "--ignore-eos")
    assert status == 0 and out.count("\n") >= 2
    assert err.count("6 tokens at ") == 2
    assert "prompt tokens kept" in err and "4 messages" in err and "/reset" in err


def test_a_file_without_a_template_says_so(cli, bare_model, monkeypatch):
    type_in(monkeypatch, "one")
    status, _, err = cli("chat", bare_model, "-n", 4)
    assert status == 0 and "no chat template" in err


def test_the_embedded_model_has_none(cli, monkeypatch):
    type_in(monkeypatch, "class A:")
    status, out, err = cli("chat", "-n", 4)
    assert status == 0 and out and "no chat template" in err


@pytest.mark.parametrize("flag", [["--system", "x"], ["--think"], ["--no-think"]])
def test_what_needs_a_template_says_so(cli, bare_model, monkeypatch, flag):
    type_in(monkeypatch, "one")
    status, out, err = cli("chat", bare_model, "-n", 4, *flag)
    assert (status, out) == (2, "") and "need a chat template" in err


def test_it_goes_on_after_an_error(cli, model, monkeypatch):
    type_in(monkeypatch, "/load /no/such/file", "no " * 300, "one")
    status, _, err = cli("chat", model, "-n", 4, "--ignore-eos")
    assert status == 0 and err.count("error: ") == 2 and "4 tokens at " in err


def test_the_template_hears_of_system_and_thinking(cli, model, monkeypatch):
    answers = set()
    for more in ((), ("--system", "the"), ("--no-think",)):
        type_in(monkeypatch, "one")
        answers.add(cli("chat", model, "-n", 12, "--ignore-eos", *more)[1])
    assert len(answers) == 3


def stop_after(monkeypatch, count):
    """Ctrl-C before the next piece; gives back what was shown."""
    real, pieces = Stream.__next__, []

    def stopped(stream):
        if len(pieces) == count:
            monkeypatch.setattr(Stream, "__next__", real)
            raise KeyboardInterrupt
        pieces.append(real(stream))
        return pieces[-1]

    monkeypatch.setattr(Stream, "__next__", stopped)
    return pieces


def test_a_stopped_answer_stays_as_far_as_it_came(model, monkeypatch):
    chat = Chat(load(model, verbose=False), SamplingParams(max_tokens=40), [], {})
    pieces = stop_after(monkeypatch, 5)
    chat.hear("the")
    assert [message["role"] for message in chat.session.messages] == ["user", "assistant"]
    assert chat.session.messages[1]["content"] == "".join(piece.text for piece in pieces) != ""
    chat.hear("go on")
    assert len(chat.session.messages) == 4


def test_an_answer_stopped_before_it_began_is_no_turn(model, monkeypatch, capsys):
    chat = Chat(load(model, verbose=False), SamplingParams(max_tokens=4), [], {})
    stop_after(monkeypatch, 0)
    chat.hear("the")
    assert chat.session.messages == []
    assert "this turn is not kept" in capsys.readouterr().err
    chat.hear("the")
    assert len(chat.session.messages) == 2
