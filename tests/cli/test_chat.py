"""chat: turns, commands, stopped answers."""

import io
import sys

import pytest

from specrt.__main__ import main
from specrt.cli.chat import Chat
from specrt.generate import Stream
from specrt.llm import load
from specrt.options import SamplingParams
from tests.tiny_model import write_tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("cli") / "tiny.gguf")


@pytest.fixture(scope="module")
def bare_model(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("cli") / "bare.gguf", template=None)


def cli(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_chat_answers_lines_and_keeps_the_prefix(capsys, model, monkeypatch, tmp_path):
    saved = tmp_path / "talk"
    lines = f"one\ntwo\n/save {saved}\n/reset\n/load {saved}\n/what\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    status, out, err = cli(capsys, "chat", model, "-n", 6, "--ignore-eos")
    assert status == 0 and out.count("\n") >= 2
    assert "prompt tokens kept" in err and "4 messages" in err and "/reset" in err


def test_chat_without_a_template_says_so(capsys, bare_model, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\n"))
    status, _, err = cli(capsys, "chat", bare_model, "-n", 4)
    assert status == 0 and "no chat template" in err


def test_chat_goes_on_after_an_error(capsys, model, monkeypatch):
    lines = ["/load /no/such/file", "no " * 300, "one"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines)))
    status, _, err = cli(capsys, "chat", model, "-n", 4, "--ignore-eos")
    assert status == 0 and err.count("error: ") == 2 and "4 tokens at" in err


def test_chat_keeps_what_a_stopped_answer_said(model, monkeypatch):
    chat = Chat(load(model, verbose=False), SamplingParams(max_tokens=40), [], {})
    real, pieces = Stream.__next__, []

    def stopped(stream):
        if len(pieces) == 5:
            raise KeyboardInterrupt
        pieces.append(real(stream))
        return pieces[-1]

    monkeypatch.setattr(Stream, "__next__", stopped)
    chat.hear("the")
    monkeypatch.setattr(Stream, "__next__", real)
    assert [message["role"] for message in chat.session.messages] == ["user", "assistant"]
    assert chat.session.messages[1]["content"] == "".join(piece.text for piece in pieces)
    chat.hear("go on")
    assert len(chat.session.messages) == 4
