"""The row-cost curve: where drafts begin to pay, what the governor learns, and the picture."""

import json
import time

import numpy as np
import pytest

import specrt
from specrt.bench import curve
from specrt.bench.__main__ import main
from specrt.bench.curve import Curve, break_evens, draw, governor_seconds, show_curves
from specrt.bench.governor_checks import forced_steps
from specrt.options import GovernorOptions
from tests.tiny_model import write_tiny_model


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return str(write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf"))


def test_a_draft_pays_when_it_emits_what_plain_steps_would():
    assert break_evens(np.array([2.0, 3.0]))[1] == pytest.approx(0.5)
    assert break_evens(np.array([1.0, 1.0, 1.75]))[1:] == pytest.approx([0.0, 0.5])
    assert break_evens(np.array([1.0, 2.0]))[1] == pytest.approx(1.0)
    assert break_evens(np.array([1.0, 2.1, 2.9])) == [0.0, None, pytest.approx(0.966, abs=1e-3)]
    (pays,) = break_evens(np.linspace(1, 9, 17))[-1:]
    assert sum(pays**i for i in range(17)) == pytest.approx(9)


def test_the_governor_learns_more_than_plain_steps(path, monkeypatch):
    monkeypatch.setattr(curve, "COPIED_TOKENS", 64)
    drafted = []

    def noted(*arguments):
        for at, num_draft in forced_steps(*arguments):
            drafted.append(num_draft)
            yield at, num_draft

    def slow(*arguments, **keywords):
        time.sleep(0.002)  # so that rows cost little beside it, and a draft pays on any machine
        return verify(*arguments, **keywords)

    monkeypatch.setattr(curve, "forced_steps", noted)
    llm = specrt.load(path, spec="none", verbose=False)
    verify = llm.target.verify
    monkeypatch.setattr(llm.target, "verify", slow)
    seconds = governor_seconds(llm, 40, 9)
    assert max(drafted) > 0 and min(drafted) == 0  # the first step is a plain one
    line = seconds[0] * (1 + 8 * GovernorOptions().row_slope)
    assert seconds[8] != pytest.approx(line)  # which is what plain steps alone let expect
    assert len(seconds) == 9 and min(seconds) > 0
    assert seconds == sorted(seconds)  # no size costs more than a larger one
    assert llm.target.num_open == 0


def test_never_is_told(capsys):
    show_curves([Curve(8, [1.0, 3.0], [0.0, None], None)])
    printed = capsys.readouterr().out
    assert "never" in printed and "governor" not in printed


def test_the_picture_has_axes_with_units(tmp_path):
    figures = pytest.importorskip("matplotlib.figure")
    labels = []

    class Noted(figures.Figure):
        def savefig(self, *arguments, **keywords):
            for axes in self.axes:
                labels.append((axes.get_xlabel(), axes.get_ylabel()))
            super().savefig(*arguments, **keywords)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "Figure", Noted)
        file = tmp_path / "curve.png"
        curves = [Curve(8, [1.0, 1.5], [0.0, 0.5], [1.0, 1.4]), Curve(9, [1, 9], [0, None], None)]
        draw(file, curves, "tiny")
    assert file.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(labels) == 2 and all("[" in label for pair in labels for label in pair)


def test_the_command(path, tmp_path, capsys):
    file = tmp_path / "curve.json"
    flags = ["--context", "20,100", "--rows", "4", "--rounds", "1", "--json", str(file)]
    assert main(["curve", "--model", path, *flags]) == 0
    assert "behind 100 tokens" in capsys.readouterr().out
    saved = json.loads(file.read_text())
    assert saved["complete"] and [one["cached"] for one in saved["curves"]] == [20, 100]
    short, long = saved["curves"]
    assert len(short["milliseconds"]) == len(short["break_even"]) == len(short["governor_ms"]) == 4
    assert long["governor_ms"] is None


def test_an_interrupt_keeps_the_curves_before_it(path, tmp_path, monkeypatch):
    def interrupted(*_):
        yield Curve(20, [1.0, 2.0], [0.0, 1.0], None)
        raise KeyboardInterrupt

    monkeypatch.setattr(curve, "measure", interrupted)
    file = tmp_path / "curve.json"
    arguments = ["--model", path, "--context", "20", "--json", str(file)]
    assert main(["curve", *arguments]) == 130
    saved = json.loads(file.read_text())
    assert saved["complete"] is False and len(saved["curves"]) == 1


def test_without_matplotlib_it_says_how_to_get_it(path, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(curve, "find_spec", lambda name: None)
    file = tmp_path / "curve.png"
    assert main(["curve", "--model", path, "--context", "20", "--png", str(file)]) == 2
    assert "specrt[bench]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--context", "490"], "expected at most 512"),
        (["--rows", "1"], "expected 2 to 65"),
        (["--rows", "66"], "expected 2 to 65"),
        (["--png", "no/such/folder/x.png"], "--png no/such/folder/x.png: expected a file"),
        (["--json", "no/such/folder/x.json"], "folder that exists"),
        (["--device", "abacus"], "abacus"),
        (["--spec-type", "ngram"], "unrecognized"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_2(path, capsys, flags, message):
    assert main(["curve", "--model", path, "--context", "20", *flags]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.out == ""
