"""``inspect`` and ``pull``, from arguments to what is printed."""

import pytest

from specrt.llm import load
from specrt.memory import memory_plan
from specrt.models.decoder import MAX_ROWS
from specrt.ops import PAGE
from tests.models_on_disk import golden_path, load_golden
from tests.tiny_model import write_tiny_model


def test_it_describes_and_plans(cli, model):
    status, out, _ = cli("inspect", model, "--context", 100, "--kv-type", "q8_0")
    assert status == 0 and "llama" in out
    assert "KV at context 100" in out and "(q8_0)" in out and "runs here" in out and "yes" in out


def test_what_does_not_run_is_described_all_the_same(cli, tmp_path):
    other = write_tiny_model(tmp_path / "other.gguf", architecture="mamba")
    status, out, _ = cli("inspect", other)
    assert status == 0 and "mamba" in out and "does not run here" in " ".join(out.split())


def test_a_drafter_that_does_not_fit_is_told(cli, model):
    status, out, _ = cli("inspect", model, "--draft-model", model)
    assert status == 0 and "expected a drafter" in " ".join(out.replace("│", " ").split())


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_the_plan_without_weights_is_what_a_loaded_model_holds(name):
    llm = load_golden(name, context=192, max_sequences=1)
    plan = memory_plan(llm.gguf, 192, "f32")
    assert plan.rows()[:-1] == llm.plan.rows()[:-1]
    layout = llm.target.layout
    assert layout.spare == MAX_ROWS
    windows = llm.target._trunk.windows
    pages = [layout.ring_pages if window else layout.pages for window in windows]
    dims = llm.target._trunk.dims
    expected = sum(
        2 * 4 * heads * dims.head_dim * PAGE * count
        for heads, count in zip(dims.kv_heads, pages, strict=True)
    )
    assert plan.kv == expected


def test_pull_ends_with_the_path(cli, monkeypatch, tmp_path):
    monkeypatch.setattr("specrt.pull.cached", lambda name: tmp_path / "a.gguf")
    status, out, err = cli("pull", "smollm2-135m")
    assert status == 0 and out == f"{tmp_path / 'a.gguf'}\n" and "Apache-2.0" in err


def test_a_pulled_name_stands_for_its_file(monkeypatch):
    monkeypatch.setattr("specrt.llm.cached", lambda name: golden_path("llama"))
    assert load("smollm2-135m", verbose=False).path == golden_path("llama")
