"""specrt beside its peers: the protocol, the order, what is left behind, and what is refused."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from itertools import groupby
from pathlib import Path

import pytest
from interrupts import popen

from benchmarks.peers.__main__ import main
from benchmarks.peers.cases import Cases
from benchmarks.peers.contestants import Choice, make_engines
from benchmarks.peers.engine import Answer, Job, PeerError
from benchmarks.peers.engines.llama_cpp import (
    LlamaCpp,
    answer,
    fastest_flash,
    ngram_types,
    request,
)
from benchmarks.peers.measure import Fresh, Plan, measure
from specrt.bench.prompts import load_prompts
from specrt.options import SpecOptions
from tests.tiny_model import write_tiny_model

ROOT = Path(__file__).parents[2]
PROMPTS = ["fact-primes", "prose-gpu"]
SMALL = ["--tokens", "6", "--rounds", "2", "--prefill", "24", "--threads", "1", "--context", "400"]
JOB = Job([5, 6, 7], "abc", 4, True)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture
def log(tmp_path, monkeypatch):
    """What the fake servers did, line by line."""
    file = tmp_path / "log.jsonl"
    file.touch()
    monkeypatch.setenv("FAKE_LLAMA_LOG", str(file))
    return lambda: [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture
def server(tmp_path):
    script = Path(__file__).parent / "fake_llama_server.py"
    file = tmp_path / "llama-server"
    file.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


@pytest.fixture
def llama(server, path, log):
    return LlamaCpp(server, path, context=400, threads=1, speculations=("ngram-mod",))


def is_gone(pid):
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat")
        return status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


def all_gone(lines):
    return all(is_gone(line["pid"]) for line in lines if line["kind"] == "start")


# The protocol


def test_a_greedy_request_by_ids():
    sent = request(JOB)
    assert sent["prompt"] == [5, 6, 7] and sent["n_predict"] == 4 and sent["ignore_eos"] is True
    assert sent["temperature"] == 0 and sent["cache_prompt"] is False
    assert sent["repeat_penalty"] == 1 and sent["return_tokens"] is True


def test_an_answer_of_each_mode(llama, log):
    plain, drafting = (llama.start(mode) for mode in ("plain", "ngram-mod"))
    try:
        alone, drafted = plain.complete(JOB), drafting.complete(JOB)
    finally:
        plain.stop()
        drafting.stop()
    assert alone.token_ids == drafted.token_ids == [7, 8, 9, 10]
    assert (alone.steps, alone.num_accepted, alone.num_drafted) == (3, 0, 0)
    assert (drafted.steps, drafted.num_accepted, drafted.num_drafted) == (1, 2, 4)
    assert alone.tokens_per_second == pytest.approx(250) and alone.ms_per_step == 4
    assert drafted.tokens_per_second == pytest.approx(750) and drafted.ms_per_step == 4
    assert alone.prompt_tokens == 3 and alone.prefill_tokens_per_second == pytest.approx(500)
    flags = log()[0]["flags"]
    assert flags[flags.index("--threads-batch") + 1] == "1"
    assert flags[flags.index("--parallel") + 1] == "1" and "--no-cache-prompt" in flags
    assert {line["kind"] for line in log()} == {"start", "prompt", "end"} and all_gone(log())


@pytest.mark.parametrize(("tokens", "accepted", "steps"), [(1, 0, 0), (4, 2, 1), (4, 5, 1)])
def test_tokens_accepted_behind_an_end_are_no_steps(tokens, accepted, steps):
    timings = {"cache_n": 0, "prompt_n": 3, "prompt_ms": 1.0, "predicted_ms": 1.0}
    timings |= {"predicted_n": tokens, "draft_n": 9, "draft_n_accepted": accepted}
    found = answer(JOB, {"tokens": [1] * tokens, "timings": timings})
    assert found.steps == steps


def test_a_variant_brings_its_own_flags(llama):
    command = llama.command("ngram-mod --spec-ngram-mod-n-match 8", 1)
    where = command.index("--spec-type")
    assert command[where : where + 4] == [
        "--spec-type",
        "ngram-mod",
        "--spec-ngram-mod-n-match",
        "8",
    ]


def test_types_without_a_draft_model_come_from_its_help(server, log):
    assert ngram_types(server) == ["ngram-simple", "ngram-mod"]


def test_the_faster_flash_attention_is_kept(llama, path, log):
    cases = Cases(path)
    flash, times = fastest_flash(llama, [cases.random((i,), 9, 4) for i in range(3)])
    assert dict(flash)["plain"] == "on" and times["plain"] == {"on": 4.0, "off": 5.0}
    orders = [line["flags"][line["flags"].index("--flash-attn") + 1] for line in log()[:2]]
    assert orders == ["on", "off"] and all_gone(log())


# What is refused, and how it is told


@pytest.mark.parametrize(
    ("fault", "seconds", "told"),
    [
        ("ends", 30.0, "ended before it came up (exit status 1)"),
        ("never", 0.5, "did not come up in 0.5 seconds (--start-seconds)"),
    ],
)
def test_a_server_that_does_not_come_up(server, path, log, monkeypatch, fault, seconds, told):
    monkeypatch.setenv("FAKE_LLAMA_FAULT", fault)
    engine = LlamaCpp(server, path, context=400, threads=1, start_seconds=seconds)
    with pytest.raises(PeerError) as caught:
        engine.start("plain")
    assert "llama.cpp (plain)" in str(caught.value) and told in str(caught.value)
    assert "loading a model" in str(caught.value)  # its last lines
    assert all_gone(log())


@pytest.mark.parametrize(
    ("fault", "told"), [("dies", "out of luck"), ("caches", "took 1 prompt ids from its cache")]
)
def test_a_server_that_dies_or_cheats(llama, log, monkeypatch, fault, told):
    monkeypatch.setenv("FAKE_LLAMA_FAULT", fault)
    server = llama.start("plain")
    try:
        with pytest.raises(PeerError, match=told):
            server.complete(JOB)
    finally:
        server.stop()
    assert all_gone(log())


class Echo:
    """A started engine that answers at once."""

    def __init__(self, num_tokens=2):
        self.num_tokens = num_tokens

    def complete(self, job):
        return Answer([1] * self.num_tokens, "", self.num_tokens, 1, len(job.ids), 1.0, 1.0, 1)

    def stop(self):
        pass


def test_a_prompt_is_refused_the_second_time():
    fresh = Fresh(Echo(), "echo")
    fresh.complete(JOB)
    with pytest.raises(PeerError, match="a prompt twice in one process"):
        fresh.complete(Job([5, 6, 7], "other", 9, False))


@pytest.mark.parametrize("num_tokens", [0, 5])
def test_an_answer_of_another_length_is_refused(num_tokens):
    with pytest.raises(PeerError, match=f"answered with {num_tokens} tokens: expected 1 to 4"):
        Fresh(Echo(num_tokens), "echo").complete(JOB)


def test_a_missing_build_and_a_missing_package(path, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SPECRT_PEERS", str(tmp_path))
    assert main(["run", "--model", str(path), *SMALL]) == 2
    told = capsys.readouterr().err
    assert 'pip install -e ".[peers]"' in told and "python -m benchmarks.peers build" in told
    assert main(["run", "--model", str(path), *SMALL, "--engines", "nobody"]) == 2
    assert "expected some of llama.cpp, openvino, mistral.rs" in capsys.readouterr().err


def test_a_package_that_is_not_installed(path, monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.peers.contestants.version", missing)
    assert main(["run", "--model", str(path), *SMALL, "--engines", "openvino"]) == 2
    assert 'openvino-genai is not installed: run `pip install -e ".[peers]"`' in (
        capsys.readouterr().err
    )


def missing(name):
    from importlib.metadata import PackageNotFoundError

    raise PackageNotFoundError(name)


# The order


class Recorder:
    """An engine that notes who was asked what, and which of its processes were alive."""

    def __init__(self, name, notes, speculations=()):
        self.name, self.notes, self.speculations = name, notes, speculations

    def start(self, mode):
        self.notes.append(("start", self.name, mode))
        return RecorderServer(self, mode)

    def about(self):
        return {}


class RecorderServer(Echo):
    def __init__(self, engine, mode):
        super().__init__(1)
        self.engine, self.mode = engine, mode

    def complete(self, job):
        self.engine.notes.append(("ask", self.engine.name, self.mode, tuple(job.ids)))
        return super().complete(job)

    def stop(self):
        self.engine.notes.append(("stop", self.engine.name, self.mode))


@pytest.fixture
def recorded(path):
    notes = []
    engines = [Recorder("a", notes, ("x",)), Recorder("b", notes, ("y", "z"))]
    cases = Cases(path)
    asked = [cases.of(prompt, 4, True) for prompt in load_prompts(PROMPTS)]
    return notes, engines, cases, asked


def test_every_round_starts_afresh_and_asks_each_prompt_once(recorded):
    notes, engines, cases, asked = recorded
    samples = list(measure(engines, cases, asked, Plan(2, 16, lambda _: None)))
    modes = {("a", "plain"), ("a", "x"), ("b", "plain"), ("b", "y"), ("b", "z")}
    alive = {}
    for kind, name, mode, *ids in notes:
        if kind == "start":
            assert (name, mode) not in alive
            alive[name, mode] = []
        elif kind == "ask":
            assert ids not in alive[name, mode]
            alive[name, mode].append(ids)
        else:
            assert len(alive.pop((name, mode))) == (4 if mode == "prefill" else 3)  # and a warm one
    assert not alive
    starts = [(name, mode) for kind, name, mode, *_ in notes if kind == "start"]
    assert {one: starts.count(one) for one in starts} == dict.fromkeys(
        modes | {("a", "prefill"), ("b", "prefill")}, 2
    )
    assert len(samples) == 2 * (2 * 3 + 5 * 2)


def test_who_was_first_is_last_next_time(recorded):
    _, engines, cases, asked = recorded
    samples = list(measure(engines, cases, asked, Plan(2, 16, lambda _: None)))
    for mode, prompts in (("plain", PROMPTS[::-1]), ("prefill", ["0", "1", "2"])):
        ours = [s for s in samples if s.contestant.mode == mode]
        groups = groupby(ours, key=lambda s: (s.round, s.prompt))
        turns = {key: "".join(s.contestant.engine for s in group) for key, group in groups}
        both = [[turns[number, prompt] for prompt in prompts] for number in (0, 1)]
        expected = [["ab", "ba"][i % 2] for i in range(len(prompts) + 1)]
        assert both == [expected[:-1], expected[1:]]


@pytest.mark.parametrize("error", [KeyboardInterrupt, PeerError, RuntimeError])
def test_all_processes_are_stopped_whatever_happens(recorded, monkeypatch, error):
    notes, engines, cases, asked = recorded

    def complete(self, job):
        if self.mode == "y":
            raise error("now")
        return Echo.complete(self, job)

    monkeypatch.setattr(RecorderServer, "complete", complete)
    with pytest.raises(error):
        list(measure(engines, cases, asked, Plan(1, 16, lambda _: None)))
    started = [note[1:] for note in notes if note[0] == "start"]
    stopped = [note[1:] for note in notes if note[0] == "stop"]
    assert sorted(started) == sorted(stopped) and ("b", "y") in started


# From end to end


def test_the_command(path, server, log, tmp_path, capsys):
    file = tmp_path / "peers.json"
    flags = ["--model", str(path), *SMALL, "--prompts", ",".join(PROMPTS), "--json", str(file)]
    flags += ["--llama-server", str(server), "--bar-decode", "1e-6", "--bar-spread"]
    status = main(["run", *flags, "--bar-prefill", "1e9", "--ignore-eos"])
    captured = capsys.readouterr()
    assert status == 1  # of the prefill
    assert "flash attention on for plain (on 4.000 ms, off 5.000 ms)" in captured.err
    assert "ngram-simple" in captured.out and "prose-gpu" in captured.out
    saved = json.loads(file.read_text())
    assert saved["complete"] is True and saved["settings"]["context"] == 400
    assert [bound["holds"] for bound in saved["bounds"]][:2] == [True, False]
    assert len(saved["bounds"]) == 3  # and the spread
    (found,) = saved["comparisons"]
    assert set(found["plain"]) == set(found["speculative"]) == set(PROMPTS)
    assert "ngram-simple" in saved["engines"]["llama.cpp"]["commands"]
    mine = [r for r in saved["results"] if r["engine"] == "specrt" and r["prompt"] == "prose-gpu"]
    assert [r["mode"] for r in mine] == ["plain", "speculative"]
    assert all(r["tokens"] == 6 and r["differs_at"] is None and r["samples"] == 2 for r in mine)
    assert str(tmp_path) not in file.read_text()
    prompts = {}
    for line in log():
        if line["kind"] == "prompt":
            seen = prompts.setdefault(line["pid"], [])
            assert line["ids"] not in seen
            seen.append(line["ids"])
    assert len(prompts) == 2 + 2 * (1 + 3) and all_gone(log())


def test_an_engine_that_fails_later_costs_nothing_that_was_measured(
    path, server, log, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("FAKE_LLAMA_FAULT", "dies in round 2")
    file = tmp_path / "peers.json"
    flags = ["--model", str(path), *SMALL, "--prompts", "prose-gpu", "--json", str(file)]
    assert main(["run", *flags, "--llama-server", str(server)]) == 2
    captured = capsys.readouterr()
    assert "out of luck" in captured.err and "prose-gpu" in captured.out
    saved = json.loads(file.read_text())
    assert saved["complete"] is False
    assert {r["mode"] for r in saved["results"]} >= {"plain", "speculative", "ngram-mod"}
    assert all_gone(log())


def test_equal_types_are_one(path, server, log):
    choice = Choice(path, 400, 1, SpecOptions(), server, ["ngram-mod", "x --y 1", "x --y 1"], 30)
    cases = Cases(path)
    probes = [cases.random((i,), 9, 4) for i in range(3)]
    llama = make_engines(["llama.cpp"], choice, probes, lambda _: None)[1]
    assert llama.speculations == ("ngram-simple", "ngram-mod", "x --y 1")


@pytest.mark.parametrize("text", ["ngram-mod 'x", " "])
def test_a_type_that_is_none_is_told(path, text, capsys):
    assert main(["run", "--model", str(path), "--llama-type", text]) == 2
    assert "argument --llama-type: " in capsys.readouterr().err


def test_ctrl_c_leaves_no_process_behind(path, server, log):
    command = [sys.executable, "-m", "benchmarks.peers", "run", "--model", str(path), *SMALL]
    command += ["--llama-server", str(server), "--rounds", "1000", "--prompts", "fact-primes"]
    process = popen(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    deadline = time.monotonic() + 50
    while len(log()) < 20 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130, told
    assert "Traceback" not in told and all_gone(log())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_a_bench_that_is_killed_leaves_no_server_behind(llama, log, server, path):
    script = (
        "import sys, time\nfrom pathlib import Path\n"
        "from benchmarks.peers.engines.llama_cpp import LlamaCpp\n"
        "LlamaCpp(Path(sys.argv[1]), Path(sys.argv[2]), 400, 1).start('plain')\n"
        "print('up', flush=True)\ntime.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, server, path], cwd=ROOT, stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    with process:
        assert process.stdout.readline() == b"up\n"
        process.kill()
    deadline = time.monotonic() + 20
    while not all_gone(log()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert all_gone(log())
