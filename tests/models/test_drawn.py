"""Tokens drawn in verify are the sampler's, and only what they accept comes to the host.

CUDA kernels run on the emulator, once by name and once below CuPy's place.
"""

import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from emulated import needs_emulator
from fake_cupy import FakeCupy

from specrt import SamplingParams
from specrt.lossless import Cell
from specrt.memory import memory_plan
from tests.models_on_disk import golden_arrays, load_golden
from tests.running import run, same
from tests.test_lossless import SETTINGS, run_mixed, with_tokens

DEVICES = ["cpu", pytest.param("emulator", marks=needs_emulator)]
on_devices = pytest.mark.parametrize("device", DEVICES)
DRAWN = {name: replace(params, logprobs=None) for name, params in SETTINGS.items()}
del DRAWN["greedy"]
DRAWN["many biases"] = SamplingParams(
    temperature=1.0, top_p=0.95, seed=8, logit_bias={i: 0.3 * (i % 7) for i in range(0, 200, 3)}
)
COUNT = 12


def load(name, device, **options):
    return load_golden(name, device=device, kv_type="f16", context=512, **options)


@cache
def loaded(name, device):
    return load(name, device, max_sequences=4)


def prompt(name):
    ids = golden_arrays(name)["tokens"].tolist()
    return ids[:16] + ids[4:11]


@pytest.fixture
def verified(monkeypatch):
    """Of each verify whether its windows drew, and whether logits came to the host."""
    seen = []

    def watch(llm):
        verify = llm.target.verify

        def watched(windows, **keywords):
            got = verify(windows, **keywords)
            seen.append(([w.draw is not None for w in windows], got.logits is not None))
            return got

        monkeypatch.setattr(llm.target, "verify", watched)
        return seen

    return watch


def by_sampler(llm, ids, params, monkeypatch):
    """The same from logits on the host."""
    with monkeypatch.context() as patch:
        patch.setattr(llm.target, "max_draw_ids", None)
        return run(llm, ids, params)


@on_devices
@pytest.mark.parametrize(
    ("name", "setting"),
    [*(("llama-quant", setting) for setting in DRAWN), ("gemma3", "penalties")],
)
def test_tokens_are_those_of_the_sampler(name, setting, device, verified, monkeypatch):
    llm, params = loaded(name, device), with_tokens(DRAWN[setting], COUNT)
    expected = by_sampler(llm, prompt(name), params, monkeypatch)
    seen = verified(llm)
    same(run(llm, prompt(name), params), expected)
    assert seen == [([True], False)] * COUNT


@on_devices
@pytest.mark.parametrize(
    ("setting", "num_draft"), [("hot", 1), ("penalties", 4), ("greedy penalties", 3)]
)
def test_speculation_changes_nothing(setting, num_draft, device, verified):
    llm, params = loaded("llama-quant", device), with_tokens(DRAWN[setting], 24)
    plain = run(llm, prompt("llama-quant"), params)
    cell, seen = Cell(setting, "scripted", num_draft), verified(llm)
    for seed in range(8):
        same(run_mixed(llm, plain, params, cell, seed), plain)
        if cell.covered:
            break
    assert cell.covered, cell
    assert all(seen == ([True], False) for seen in seen)


@on_devices
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_ends_are_held_back(temperature, device, verified, monkeypatch):
    """A greedy one draws until then, and goes on with the argmax."""
    name = "llama-quant"
    llm, least = loaded(name, device), 8
    params = SamplingParams(temperature, seed=3, max_tokens=COUNT, ignore_eos=True)
    whole = run(llm, prompt(name), params).token_ids
    params = replace(params, stop_token_ids=(whole[2], whole[4]), min_tokens=least)
    expected = by_sampler(llm, prompt(name), params, monkeypatch)
    seen = verified(llm)
    plain = run(llm, prompt(name), params)
    same(plain, expected)
    assert not set(plain.token_ids[:least]) & {whole[2], whole[4]}
    drawn = [draws[0] for draws, _ in seen]
    assert drawn == [temperature > 0 or i < least for i in range(len(plain.token_ids))]
    for seed in range(2):
        same(run_mixed(llm, plain, params, Cell("ends", "scripted", 3), seed), plain)


@on_devices
def test_who_draws_from_logits_does_so_in_every_step(device, verified, monkeypatch):
    llm, ids = loaded("llama-quant", device), prompt("llama-quant")
    params = with_tokens(DRAWN["many biases"], 12)
    expected, seen = run(llm, ids, params), verified(llm)
    monkeypatch.setattr(llm.target, "max_draw_ids", len(params.logit_bias) - 1)
    same(run(llm, ids, params), expected)
    logprobs = run(llm, ids, replace(params, logprobs=0, logit_bias={}))
    assert len(logprobs.logprobs) == 12
    assert seen == [([False], True)] * 24


@on_devices
def test_all_kinds_beside_each_other(device, verified):
    """Greedy, drawn and with log probabilities, each as if alone, whatever the others are."""
    llm, ids = loaded("llama-quant", device), prompt("llama-quant")
    kinds = [
        (9, SamplingParams()),
        (8, DRAWN["penalties"]),
        (3, SETTINGS["penalties"]),
        (6, DRAWN["hot"]),
        (5, DRAWN["greedy penalties"]),
        (4, SETTINGS["warm"]),
        (6, SamplingParams(min_tokens=4, stop_token_ids=(3,))),
    ]
    params = [with_tokens(kind, count) for count, kind in kinds]
    prompts = [ids[i:] for i in range(len(kinds))]
    alone = [run(llm, *one) for one in zip(prompts, params, strict=True)]
    seen = verified(llm)
    batch = llm.generate(prompts, params, spec="ngram")
    for got, expected in zip(batch, alone, strict=True):
        same(got, expected)
    assert any(got.stats.num_drafted for got in batch)
    assert ([False, True, False, True], True) in seen  # the first four
    assert any(len(set(draws)) == 2 and not logits for draws, logits in seen)


@needs_emulator
def test_the_cuda_device_draws_the_same_from_graphs(monkeypatch):
    """What is replayed reads each step's edits, and those of other requests."""
    cupy = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    llm, ids = load("llama-quant", "cuda", max_sequences=4), prompt("llama-quant")
    for setting in ("warm", "penalties", "many biases"):
        params = with_tokens(DRAWN[setting], COUNT)
        expected = run(loaded("llama-quant", "emulator"), ids, params)
        same(llm.generate(ids, params), expected)
    assert cupy.num_graph_launches > 3 * (COUNT - 2)


@needs_emulator
@pytest.mark.parametrize("setting", ["warm", "penalties"])
def test_a_drawing_step_brings_back_three_integers(setting, monkeypatch):
    cupy = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    llm, ids = load("llama-quant", "cuda", max_sequences=1), prompt("llama-quant")
    params = with_tokens(DRAWN[setting], 3)
    llm.generate(ids, params)  # kernels have run, and there is a graph
    stream = llm.stream(ids, with_tokens(DRAWN[setting], 5), spec=None)
    next(stream)
    cupy.launches.clear()
    counted = ("num_uploads", "num_graph_launches", "num_downloads", "num_bytes_back")
    before = [getattr(cupy, name) for name in counted]
    list(stream)
    after = [getattr(cupy, name) for name in counted]
    assert np.subtract(after, before).tolist() == [2 * 4, 4, 4, 3 * 4 * 4]
    assert cupy.launches == []


@on_devices
def test_the_memory_plan_counts_what_draws_take(device):
    llm = loaded("llama-quant", device)
    plan = memory_plan(llm.gguf, context=512, max_sequences=4, device=device)
    one = memory_plan(llm.gguf, context=512, max_sequences=1, device=device)
    assert llm.plan.buffers == plan.buffers
    vocab_size = llm.target.vocab_size
    assert plan.buffers - one.buffers >= 3 * (64 + 16 * min(vocab_size, 512 + 1024))
