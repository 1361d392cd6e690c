"""The bar of a long load: there while it runs, where somebody looks, and else nowhere."""

import io
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import specrt
from specrt import progress
from specrt.progress import loading_bar
from tests.tiny_model import write_tiny_model

ROOT = Path(__file__).parent.parent
GIGABYTE = 10**9
HIDE_CURSOR, SHOW_CURSOR, ERASE_LINE = "\x1b[?25l", "\x1b[?25h", "\x1b[2K"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def open_terminal(monkeypatch):
    """Called in the test, since pytest puts its own stderr there when a test begins."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")

    def open_it():
        monkeypatch.setattr(sys, "stderr", Terminal())
        return sys.stderr

    return open_it


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(progress, "WAIT", -1.0)


def text(stderr):
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stderr.getvalue())


def test_a_short_load_shows_nothing(open_terminal):
    terminal = open_terminal()
    with loading_bar(GIGABYTE, True) as report:
        for _ in range(1000):
            report(10**6)
    assert terminal.getvalue() == ""


def test_a_long_one_shows_bytes_and_speed_and_then_is_gone(open_terminal, at_once):
    terminal = open_terminal()
    with loading_bar(4 * GIGABYTE, True) as report:
        for _ in range(3):
            report(GIGABYTE)
        progress.time.sleep(0.3)  # it is drawn ten times a second
    shown = text(terminal)
    assert "loading" in shown and "3.0/4.0 GB" in shown and "B/s" in shown
    assert terminal.getvalue().index(HIDE_CURSOR) < terminal.getvalue().index(SHOW_CURSOR)
    assert terminal.getvalue().rstrip().endswith(ERASE_LINE)


def test_it_waits(open_terminal, monkeypatch):
    terminal = open_terminal()
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with loading_bar(100, True) as report:
        now[0] += 0.4
        report(40)
        assert terminal.getvalue() == ""
        now[0] += 0.2
        report(20)
        assert "60/100 bytes" in text(terminal)


def test_what_is_printed_meanwhile_goes_where_it_belongs(open_terminal, at_once, capsys):
    terminal = open_terminal()
    with loading_bar(100, True) as report:
        report(1)
        print("an answer")
        print("a warning", file=sys.stderr)
    assert capsys.readouterr().out == "an answer\n"
    assert "a warning" in text(terminal) and "an answer" not in text(terminal)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupted_load_leaves_the_terminal_as_it_was(open_terminal, at_once, error):
    terminal = open_terminal()
    threads = set(threading.enumerate())
    with pytest.raises(error), loading_bar(100, True) as report:
        report(10)
        assert HIDE_CURSOR in terminal.getvalue() and SHOW_CURSOR not in terminal.getvalue()
        raise error
    assert terminal.getvalue().count(SHOW_CURSOR) == 1
    assert terminal.getvalue().endswith(ERASE_LINE)
    for thread in set(threading.enumerate()) - threads:
        thread.join(10)
    assert set(threading.enumerate()) <= threads


def test_nobody_looks(monkeypatch, at_once, capsys):
    with loading_bar(100, True) as report:  # no terminal
        assert report is None
    monkeypatch.setattr(sys, "stderr", Terminal())
    with loading_bar(100, False) as report:
        assert report is None
    assert sys.stderr.getvalue() == "" and capsys.readouterr().err == ""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.mark.parametrize("device", ["cpu", "emulator", "reference"])
def test_loading_shows_it_before_the_plan_on_every_device(model, open_terminal, at_once, device):
    terminal = open_terminal()
    llm = specrt.load(model, device=device, context=64)
    shown, (before, plan) = text(terminal), text(terminal).split("memory:")
    size = sum(tensor.nbytes for tensor in llm.gguf.tensors.values())
    assert "loading" in before and "loading" not in plan and shown.endswith("\n")
    assert f"{size / 1000:,.1f}/{size / 1000:,.1f} kB" in before or size < 1000


def test_it_comes_to_the_whole_file(model, monkeypatch):
    done, real = [], specrt.llm.load_trunk
    monkeypatch.setattr(specrt.llm, "load_trunk", lambda g, o, c, _: real(g, o, c, done.append))
    llm = specrt.load(model, verbose=False)
    assert sorted(done) == sorted(tensor.nbytes for tensor in llm.gguf.tensors.values())


def test_rich_is_not_imported_for_nothing(model):
    script = f"import sys, specrt; specrt.load({str(model)!r}); print('rich' in sys.modules)"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n" and done.stderr.startswith("memory: weights")
