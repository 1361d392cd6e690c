"""The command line: flags, exit statuses, what goes to stdout and what to stderr."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from specrt.__main__ import main, parser
from specrt.cli import flags
from specrt.cli.answer import OriginSpans, legend, summary
from specrt.settings import SETTINGS
from specrt.stats import Phases, Stats
from tests.models_on_disk import golden_path
from tests.tiny_model import write_tiny_model

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for setting in SETTINGS:
        for variable in setting.variables:
            monkeypatch.delenv(variable, raising=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("cli") / "tiny.gguf")


@pytest.fixture(scope="module")
def bare_model(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("cli") / "bare.gguf", template=None)


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


def test_errors_of_the_model_s_options(capsys, model):
    for arguments, message in (
        (["--spec-type", "medusa"], "spec type 'medusa'"),
        (["--context", "513"], "context = 513"),
        (["--draft-model", model], "expected a drafter"),
    ):
        status, _, err = cli(capsys, "generate", model, "-p", "x", *arguments)
        assert status == 2 and message in err


def test_no_model_names_the_pull_command(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("SPECRT_CACHE", str(tmp_path))
    status, _, err = cli(capsys, "generate", "-p", "x")
    assert status == 2 and "python -m specrt pull smollm2-135m" in err


def test_generate_streams_the_text_and_tells_about_it(capsys, model):
    status, out, err = cli(capsys, "generate", model, "-p", "the the the", "-n", 20, "--ignore-eos")
    assert status == 0 and len(out.strip()) > 0
    assert "20 tokens at" in err and err.count("\n") == 1
    again = cli(
        capsys, "generate", model, "-p", "the the the", "-n", 20, "--ignore-eos", "--no-spec"
    )
    assert again[1] == out and "plain (speculation is off)" in again[2]


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
    assert "corrected (in place of a wrong draft)" in err and "plain (no draft)" in err


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
    from specrt.cli.chat import Chat
    from specrt.generate import Stream
    from specrt.llm import load

    chat = Chat(load(model, verbose=False), flags.SamplingParams(max_tokens=40), [], {})
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


def test_inspect_describes_and_plans(capsys, model):
    status, out, _ = cli(capsys, "inspect", model)
    assert status == 0 and "llama" in out
    assert "KV at context 512" in out and "runs here" in out and "yes" in out


def test_inspect_describes_what_does_not_run(capsys, tmp_path):
    other = write_tiny_model(tmp_path / "other.gguf", architecture="mamba")
    status, out, _ = cli(capsys, "inspect", other)
    assert status == 0 and "mamba" in out and "does not run here" in " ".join(out.split())


def test_an_interrupt_ends_cleanly(capsys, model, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("specrt.cli.generate._show", interrupted)
    status, out, err = cli(capsys, "generate", model, "-p", "x")
    assert status == 130 and out == "\n" and err == ""


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


def test_summary_says_who_drafted_or_why_not():
    stats = Stats(speculator="ngram", time_to_first_token=12.3, plain_step_ms=10.0)
    stats.phases = Phases(prefill=5, verify=40, plain=10)
    stats.count_step(4, 4)
    stats.count_step(4, 1)
    stats.count_step(0, 0)
    line = summary(stats)
    assert "ngram: 5 of 8 accepted (62 %), 3.5 tokens a draft" in line
    assert "8 tokens at 160.0/s, 1.60x plain" in line and "first after 12 ms" in line
    assert "ngram: no draft" in summary(Stats(speculator="ngram"))
    assert "plain; draft-head: none" in summary(Stats(declined=["draft-head: none"]))
    assert "5 accepted" in legend(stats).plain and "1 plain" in legend(stats).plain


def test_origins_follow_characters_over_tokens():
    pieces = [b"ab", "é".encode()[:1], "é".encode()[1:] + b"c", b"\xff", b"d", b""]
    spans = OriginSpans(lambda token: pieces[token])
    spans.add([0, 1], ["plain", "accepted"])
    assert list(spans.spans("ab")) == [("ab", "plain")]
    spans.add([2, 3, 4, 5], ["bonus", "corrected", "plain", "accepted"])
    assert list(spans.spans("éc\ufffdd")) == [
        ("é", "accepted"),
        ("c", "bonus"),
        ("\ufffd", "corrected"),
        ("d", "plain"),
    ]
    assert list(spans.spans("")) == []
