"""The benchmark of whole steps: they are the steps that it says, and only their own work counts."""

import time
from dataclasses import replace

import numpy as np
import pytest

from specrt.bench import step_overhead
from specrt.bench.blank_model import Script, ScriptedProgram, Stopwatch, blank_decoder
from specrt.bench.host import HostTime, step_bounds, step_times
from specrt.bench.step_overhead import STEP_CASES, StepCase, _Stage, step_time
from specrt.bench.timing import Latency, WrongResultError
from specrt.speculative.runtime import Runtime
from specrt.state.messages import Window

CASES = [replace(case, history=500) for case in STEP_CASES if case.history == 1_000]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_steps_emit_the_text_at_the_wanted_length(case, monkeypatch):
    emitted, starts = [], []
    step = Runtime.step

    def noted(self, requests):
        starts.append(requests[0].sequence.cursor.num_tokens)
        (acceptance,) = step(self, requests)
        emitted.append(len(acceptance.tokens))
        return [acceptance]

    monkeypatch.setattr(Runtime, "step", noted)
    # The program takes so long that drafts pay on any machine, as the case has it.
    for name in ("WARM_BYTES", "COLD_BYTES"):
        monkeypatch.setattr(step_overhead, name, 1 << 23)
    result = step_time(case, 150)
    assert len(emitted) == 200 and starts[0] == starts[100] == 500
    assert result.num_steps == emitted.count(9 if case.drafts else 1) > 0
    assert 0 < result.overhead.median <= result.overhead.p999
    assert (result.draws.median > 0) == case.sampled


def test_the_program_does_not_count(monkeypatch):
    run = ScriptedProgram._raise

    def slow(self, *args):
        time.sleep(0.02)
        run(self, *args)

    monkeypatch.setattr(ScriptedProgram, "_raise", slow)
    steps = list(_Stage(StepCase(False, True, False, 300)).steps(5))
    assert all(0 < overhead < 20e6 for _, overhead, _ in steps)


def test_a_stopwatch_adds_until_it_is_read():
    watch = Stopwatch()
    for _ in range(2):
        watch.stop(time.perf_counter_ns() - 1_000_000)
    assert watch.take() >= 2e6 and watch.take() == 0


@pytest.mark.parametrize(("draft", "m"), [([], 0), ([5, 6], 2), ([5, 9], 1), ([9, 6], 0)])
def test_a_scripted_program_accepts_what_the_text_has(draft, m):
    script = Script(np.array([3, 4, 5, 6, 7, 8], np.int32), np.zeros(8))
    target = blank_decoder(script, 10)
    window = Window(target.open_sequence(), [4, *draft], 1)
    got = target.verify([window], logits=True)
    assert got.ids.tolist() == [5, 6, 7][: len(draft) + 1]
    assert got.outcomes.tolist() == [[m, [5, 6, 7][m], m + 2]]
    assert got.logits.argmax(axis=1).tolist() == got.ids.tolist()
    again = target.verify([Window(window.sequence, [6], 3)], logits=True)
    assert again.logits[0].argmax() == 7 and np.count_nonzero(again.logits[0]) == 10


def test_other_ids_have_no_time(monkeypatch):
    real = ScriptedProgram.run

    def wrong(self):
        real(self)
        self.outcomes[0, 1] = 1

    monkeypatch.setattr(ScriptedProgram, "run", wrong)
    with pytest.raises(WrongResultError, match="other ids"):
        step_time(StepCase(False, False, False, 300), 1)


def test_a_case_without_its_steps_has_no_time(monkeypatch):
    monkeypatch.setattr(step_overhead.NgramSpeculator, "propose", lambda self, contexts: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        step_time(StepCase(True, False, False, 300), 1)
    monkeypatch.undo()
    monkeypatch.setattr(step_overhead, "PERIOD", 10_000)  # nothing repeats
    with pytest.raises(WrongResultError, match="none of 100 had that K"):
        step_time(StepCase(True, False, False, 300), 1)


def test_the_bound_of_a_step():
    times = [
        HostTime(part, "plain", 1000, Latency(median, 99.0), 1)
        for part, median in (("step", 40.0), ("step", 40.1), ("step draws", 100.0))
    ]
    assert [bound.holds for bound in step_bounds(times)] == [True, False]


def test_draws_are_told_where_there_are_some():
    parts = [one.part for one in step_times(StepCase(False, True, False, 300), 10)]
    assert parts == ["step", "step draws"]
    parts = [one.part for one in step_times(StepCase(False, False, False, 300), 10)]
    assert parts == ["step"]
