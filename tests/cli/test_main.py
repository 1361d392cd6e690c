"""Exit statuses, and what stands on stderr when a command does not come to its end."""

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interrupts import popen

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "-p", "x", "-f", "y"], "not allowed with"),
        (["generate", "-p", "x", "--chat", "--raw"], "not allowed with"),
        (["generate", "missing.gguf", "-p", "x"], "missing.gguf"),
        (["generate", "no-such-model", "-p", "x"], "no file 'no-such-model'"),
        (["generate", "no-such-model", "-p", "x"], "tiny, tiny-dflash2, smollm2-135m, gemma3-270m"),
        (["generate", "-f", "/no/such/file"], "/no/such/file"),
        (["generate", "-f", sys.executable], "expected a text in UTF-8"),
        (["chat", "missing.gguf"], "missing.gguf"),
        (["verify-lossless", "missing.gguf"], "missing.gguf"),
        (["pull", "no-such-model"], "expected one of smollm2-135m"),
        (["inspect", "missing.gguf"], "missing.gguf"),
        (["inspect", str(ROOT / "pyproject.toml")], "pyproject.toml"),
        (["nonsense"], "invalid choice"),
        ([], "COMMAND"),
    ],
)
def test_errors_are_one_line_and_status_2(cli, arguments, message):
    status, out, err = cli(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err


@pytest.mark.parametrize("name", ["smollm2-135m", "gemma3-270m"])
def test_a_model_that_was_not_pulled_names_the_pull_command(cli, monkeypatch, tmp_path, name):
    monkeypatch.setenv("SPECRT_CACHE", str(tmp_path))
    status, _, err = cli("generate", name, "-p", "x")
    assert status == 2 and f"python -m specrt pull {name}" in err


def test_a_terminal_without_a_prompt_is_told(cli, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    status, _, err = cli("generate")
    assert status == 2 and err.startswith("error: no prompt: expected -p TEXT")


def start(model, *arguments, **streams):
    command = [sys.executable, "-u", "-m", "specrt", "generate", model, "-p", "x", *arguments]
    return popen(command, cwd=ROOT, stderr=subprocess.PIPE, **streams)


def test_ctrl_c_ends_an_answer_with_its_line(model):
    process = start(model, "--ignore-eos", stdout=subprocess.PIPE)
    assert process.stdout.read(20)  # it is answering now
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.count(b"\n") == 1 and b"tokens at " in err


def test_ctrl_c_while_a_model_is_loaded(cli, model, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("specrt.llm.load", interrupted)
    assert cli("generate", model, "-p", "x") == (130, "", "")


@pytest.mark.parametrize("more", [(), ("--show-drafts",)])
def test_a_closed_pipe_is_quiet(model, more):
    read, write = os.pipe()
    os.close(read)
    process = start(model, "-n", "8", *more, stdout=write)
    os.close(write)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 141
    assert b"Traceback" not in err and b"Exception" not in err


def test_a_chat_that_nobody_reads_ends(model):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "specrt", "chat", model, "-n", "4", "--ignore-eos"]
    streams = {"stdin": subprocess.PIPE, "stdout": write, "stderr": subprocess.PIPE}
    process = popen(command, cwd=ROOT, **streams)
    os.close(write)
    _, err = process.communicate(b"one\ntwo\n", timeout=30)
    assert process.returncode == 141
    assert b"error" not in err and b"Traceback" not in err and b"Exception" not in err
