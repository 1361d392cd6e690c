"""How steady decoding is: what is counted, and the process beside it."""

import json
import os
import subprocess

import pytest

import specrt
from specrt.bench import spread
from specrt.bench.__main__ import main
from specrt.bench.spread import Run, bounds_of, busy_process, decode, measure, steadiness
from specrt.bench.timing import WrongResultError
from tests.tiny_model import write_tiny_model


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return str(write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf"))


@pytest.fixture
def llm(path):
    return specrt.load(path, spec="none", verbose=False)


def test_runs_and_steps_are_counted_apart():
    runs = [Run([1], [2.0] * 4), Run([1], [4.0] * 4), Run([1], [2.0, 2.0, 2.0, 10.0])]
    found = steadiness(runs)
    assert found.tokens_per_second == [500.0, 250.0, 250.0]
    assert found.run_spread == pytest.approx((375 - 250) / 250)
    assert (found.steps, found.median_ms, found.max_ms) == (12, 2.0, 10.0)
    assert found.p99_ms == pytest.approx(9.34) and found.p999_ms == pytest.approx(9.934)
    (bound,) = bounds_of(found, "alone")
    assert bound.figure == pytest.approx(9.934 / 2) and bound.bar == 3.0 and not bound.holds


def test_a_run_times_each_step_of_an_equal_text(llm, monkeypatch):
    monkeypatch.setattr(spread, "PROMPT_TOKENS", 9)
    run = decode(llm, 5)
    assert len(run.milliseconds) == 5 and min(run.milliseconds) > 0
    assert len(run.ids) == 9 + spread.WARM_STEPS + 5
    assert run.ids == decode(llm, 5).ids
    assert llm.target.num_open == 0


def test_other_ids_have_no_time(llm, monkeypatch):
    runs = iter([Run([1, 2], [1.0]), Run([1, 2], [1.0]), Run([1, 3], [1.0])])
    monkeypatch.setattr(spread, "decode", lambda *_: next(runs))
    measured = measure(llm, 2, 1)
    assert next(measured).ids == [1, 2]
    with pytest.raises(WrongResultError, match="other ids"):
        next(measured)


@pytest.fixture
def started(monkeypatch):
    """The processes that are started meanwhile."""
    processes, popen = [], subprocess.Popen

    def noted(command, **keywords):
        processes.append(popen(command, **keywords))
        return processes[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    return processes


def test_the_busy_process_runs_in_the_block_and_not_after_it(started):
    with pytest.raises(KeyboardInterrupt), busy_process(True):
        assert started[0].poll() is None
        assert os.getsid(started[0].pid) != os.getsid(0)  # which a terminal's Ctrl-C does not reach
        raise KeyboardInterrupt
    assert started[0].returncode is not None
    with busy_process(False):
        pass
    assert len(started) == 1


def test_the_busy_process_ends_with_who_asked_for_it():
    """Its parent is not who it was told to be, as after the death of that."""
    command = [spread.sys.executable, "-c", spread.SPIN, str(os.getpid() + 1)]
    assert subprocess.run(command, timeout=30).returncode == 0


def test_a_busy_process_that_ended_is_told(started, monkeypatch):
    monkeypatch.setattr(spread, "SPIN", "")
    with pytest.raises(WrongResultError, match="ended before"), busy_process(True):
        started[0].wait()


@pytest.mark.parametrize("beside", [False, True])
def test_the_command(path, tmp_path, capsys, beside):
    file = tmp_path / "spread.json"
    flags = ["--steps", "20", "--run-steps", "6", "--json", str(file)] + ["--beside"] * beside
    assert main(["spread", "--model", path, *flags]) == 0
    assert ("busy process" in capsys.readouterr().out) == beside
    saved = json.loads(file.read_text())
    assert saved["complete"] and saved["settings"]["beside"] is beside
    assert saved["result"]["steps"] == 24 and len(saved["result"]["tokens_per_second"]) == 4
    (bound,) = saved["bounds"]
    assert bound["bar"] == 3.0 and bound["holds"] == (bound["figure"] <= 3)


def test_an_interrupt_keeps_the_runs_before_it(path, tmp_path, monkeypatch):
    def interrupted(*_):
        yield Run([1], [1.0, 2.0])
        raise KeyboardInterrupt

    monkeypatch.setattr(spread, "measure", interrupted)
    file = tmp_path / "spread.json"
    assert main(["spread", "--model", path, "--json", str(file)]) == 130
    saved = json.loads(file.read_text())
    assert saved["complete"] is False and saved["result"]["steps"] == 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--run-steps", "400", "--steps", "400"], "fewer --run-steps"),
        (["--steps", "10"], "at least --run-steps 200"),
        (["--steps", "0"], "expected an integer >= 1"),
        (["--json", "no/such/folder/x.json"], "folder that exists"),
        (["--spec-type", "ngram"], "unrecognized"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_2(path, capsys, flags, message):
    assert main(["spread", "--model", path, *flags]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.out == ""
