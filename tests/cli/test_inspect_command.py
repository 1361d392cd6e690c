"""``inspect`` and ``pull``, from arguments to what is printed."""

import sys

import pytest

from specrt.assets import FILES
from specrt.llm import load
from tests.models_on_disk import golden_path
from tests.tiny_model import write_tiny_model


def test_it_describes_and_plans(cli, model):
    status, out, _ = cli("inspect", model, "--context", 100, "--kv-type", "q8_0")
    assert status == 0 and "llama" in out
    assert "KV at context 100" in out and "(q8_0)" in out and "runs here" in out and "yes" in out


def test_a_plan_for_cuda_needs_none(cli, model, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    status, out, _ = cli("inspect", model, "--device", "cuda", "--context", 100)
    words = " ".join(out.replace("│", " ").split())
    assert status == 0 and "runs here no: CUDA needs CuPy" in words
    assert "KV at context 100" in words and "drafter none" in words and "headroom" not in words


def test_what_does_not_run_is_described_all_the_same(cli, tmp_path):
    other = write_tiny_model(tmp_path / "other.gguf", architecture="mamba")
    status, out, _ = cli("inspect", other)
    assert status == 0 and "mamba" in out and "does not run here" in " ".join(out.split())


def test_a_drafter_that_does_not_fit_is_told(cli, model):
    status, out, _ = cli("inspect", model, "--draft-model", model)
    assert status == 0 and "expected a drafter" in " ".join(out.replace("│", " ").split())


def test_a_plan_that_cannot_be_is_told(cli, model):
    status, out, _ = cli("inspect", model, "--context", 10**12)
    assert status == 0 and "no: " in out and "expected 1 to 512" in " ".join(out.split())


def test_what_a_plain_model_has_no_place_for_does_not_run(cli, tmp_path):
    path = write_tiny_model(tmp_path / "bare.gguf", drop=("blk.1.ffn_up.weight",))
    status, out, _ = cli("inspect", path)
    assert status == 0 and "no: " in out and "ffn_up" in out


def test_pull_ends_with_the_path(cli, monkeypatch, tmp_path):
    monkeypatch.setattr("specrt.pull.cached", lambda name: tmp_path / "a.gguf")
    status, out, err = cli("pull", "smollm2-135m")
    assert status == 0 and out == f"{tmp_path / 'a.gguf'}\n" and "Apache-2.0" in err


def test_a_pulled_name_stands_for_its_file(monkeypatch):
    monkeypatch.setattr("specrt.llm.cached", lambda name: golden_path("llama"))
    assert load("smollm2-135m", verbose=False).path == golden_path("llama")


@pytest.mark.parametrize("name", FILES)
def test_there_is_nothing_to_pull_of_what_comes_with_specrt(cli, name):
    status, out, err = cli("pull", name)
    assert status == 0 and out == f"{FILES[name]}\n" and f"{name} comes with specrt" in err


def test_the_embedded_drafter_is_described_by_its_name(cli):
    status, out, _ = cli("inspect", "tiny", "--draft-model", "tiny-dflash2")
    words = " ".join(out.replace("│", " ").split())
    assert status == 0 and "name specrt-tiny-py " in words
    assert "name specrt-tiny-py-dflash2 " in words


def test_without_a_file_it_describes_the_embedded_model(cli):
    named, unnamed = cli("inspect", "tiny"), cli("inspect")
    assert named[0] == unnamed[0] == 0
    words = " ".join(unnamed[1].replace("│", " ").split())
    assert "name specrt-tiny-py" in words and "runs here yes" in words
