"""The benchmark of loading: fresh processes, a checked token, and its bounds."""

import json

import pytest

from specrt.bench import load
from specrt.bench.__main__ import main
from specrt.bench.load import Started, bounds_of
from specrt.bench.timing import Spread
from tests.tiny_model import write_tiny_model


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


def test_the_command(path, tmp_path, capsys):
    file = tmp_path / "load.json"
    flags = ["--model", str(path), "--rounds", "1", "--threads", "1", "--kv-type", "f32"]
    assert main(["load", *flags, "--json", str(file)]) == 0
    assert "load to first token" in capsys.readouterr().out
    saved = json.loads(file.read_text())
    imported, loaded = saved["results"]
    assert 0 < imported["seconds"]["median"] < loaded["seconds"]["median"]
    assert imported["peak_bytes"] is None and loaded["peak_bytes"] > 20e6
    # 2 layers of keys and values, 2 heads of 32 dims each, float32, at the whole context
    assert saved["kv_bytes"] >= 2 * 2 * 2 * 32 * 4 * 512
    most = path.stat().st_size + saved["kv_bytes"] + 400e6
    assert [bound["bar"] for bound in saved["bounds"]] == [0.3, 3.0, most / 2**20]
    assert str(tmp_path) not in file.read_text()


def test_a_wrong_first_token_has_no_time(path, monkeypatch, capsys):
    outputs = iter(["0.1", "0.1", "[1.0, 5, 7, 7]", "[1.0, 5, 7, 8]"])
    monkeypatch.setattr(load, "_output", lambda *_: next(outputs))
    assert main(["load", "--model", str(path), "--rounds", "1"]) == 1
    captured = capsys.readouterr()
    assert captured.out == "" and "first token 7, but the likeliest one is 8" in captured.err


def test_a_model_that_is_not_there(capsys):
    assert main(["load", "--model", "missing.gguf"]) == 2
    assert "missing.gguf" in capsys.readouterr().err


def test_bounds():
    found = [
        Started("import specrt", Spread(0.2, 0.1, 0.9)),
        Started("load to first token", Spread(3.5, 1.0, 9.0), 5 * 2**20),
    ]
    assert [bound.holds for bound in bounds_of(found, 6 * 2**20)] == [True, False, True]
    assert [bound.holds for bound in bounds_of(found[:1], 1)] == [True]  # interrupted
