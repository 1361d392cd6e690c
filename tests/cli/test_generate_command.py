"""generate and inspect: the prompt, the template, what ends them early."""

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from specrt.__main__ import main
from tests.models_on_disk import golden_path
from tests.tiny_model import write_tiny_model

ROOT = Path(__file__).parents[2]


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


def test_the_template_is_used_unless_raw(capsys, model, bare_model):
    arguments = ("-p", "an other", "-n", 24, "--ignore-eos")
    chat, raw = (cli(capsys, "generate", model, *arguments, *more) for more in ((), ("--raw",)))
    assert chat[1] != raw[1]
    thinking = cli(capsys, "generate", model, *arguments, "--no-think")
    assert thinking[1] != chat[1]
    bare = [cli(capsys, "generate", bare_model, *arguments, *more) for more in ((), ("--raw",))]
    assert bare[0][1] == bare[1][1] == raw[1]


def test_show_drafts_tells_what_the_colours_mean(capsys, model):
    plain = cli(capsys, "generate", model, "-p", "the", "-n", 24, "--ignore-eos")
    status, out, err = cli(
        capsys, "generate", model, "-p", "the", "-n", 24, "--ignore-eos", "--show-drafts"
    )
    assert status == 0 and out == plain[1]
    assert "corrected (after a wrong one)" in err and " plain" in err


def test_prompt_from_a_file(capsys, model, tmp_path, monkeypatch):
    path = tmp_path / "prompt.txt"
    path.write_text("the end")
    arguments = ("-n", 8, "--ignore-eos")
    typed = cli(capsys, "generate", model, "-p", "the end", *arguments)
    assert cli(capsys, "generate", model, "-f", path, *arguments)[1] == typed[1]
    monkeypatch.setattr(sys, "stdin", io.StringIO("the end"))
    assert cli(capsys, "generate", model, "-f", "-", *arguments)[1] == typed[1]


def test_a_file_without_text_says_so(capsys):
    status, _, err = cli(capsys, "generate", golden_path("llama-quant"), "-p", "x")
    assert status == 2 and "no tokenizer" in err


def test_inspect_describes_and_plans(capsys, model):
    status, out, _ = cli(capsys, "inspect", model)
    assert status == 0 and "llama" in out
    assert "KV at context 512" in out and "runs here" in out and "yes" in out


def test_inspect_describes_what_does_not_run(capsys, tmp_path):
    other = write_tiny_model(tmp_path / "other.gguf", architecture="mamba")
    status, out, _ = cli(capsys, "inspect", other)
    assert status == 0 and "mamba" in out and "does not run here" in " ".join(out.split())


def test_a_closed_pipe_is_quiet(model):
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        [sys.executable, "-m", "specrt", "generate", model, "-p", "x", "-n", "8"],
        stdout=write,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    os.close(write)
    assert process.returncode == 141
    assert b"Traceback" not in process.stderr and b"Exception" not in process.stderr


def test_ctrl_c_ends_cleanly_and_tells_what_came(model):
    """The signal itself, in the middle of an answer that the reference takes seconds for."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "specrt", "generate", model, "-p", "x"),
            *("--device", "reference", "--temperature", "1", "--min-tokens", "400"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout is not None
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err and b"tokens at" in err
