"""Whole models over the CUDA kernels: rows stand alone, speculation changes nothing, graphs replay.

The kernels run on the emulator, once by name and once below CuPy's place, where programs become
graphs and the device works late.
"""

import sys
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from emulated import needs_emulator
from fake_cupy import FakeCupy

from specrt import SamplingParams, kernels
from specrt.kernels import KernelOps
from specrt.kernels.emulator import Emulator
from specrt.llm import LLM
from specrt.lossless import Cell
from specrt.models import programs
from specrt.options import SpecOptions
from specrt.session import Session
from specrt.state.messages import Window
from tests.models.test_invariance import rows_of, tokens
from tests.models_on_disk import GOLDENS, golden_arrays, load_golden
from tests.running import run, same
from tests.test_lossless import SETTINGS, run_mixed, with_tokens

pytestmark = needs_emulator

COUNT = 150
NUM_ROWS = (*range(1, 18), 33, 65)


def load(name: str, device: str = "emulator", **options) -> LLM:
    options = {"kv_type": "f16", "context": 512, "max_sequences": 2} | options
    return load_golden(name, device=device, **options)


@cache
def emulated(name: str) -> LLM:
    return load(name)


@cache
def one_by_one(name: str) -> np.ndarray:
    return rows_of(emulated(name), tokens(name)[:COUNT], [1] * 69, prefilled=COUNT - 69)


@pytest.mark.parametrize("name", GOLDENS)
def test_rows_are_the_same_among_any_others(name):
    """Windows of T rows across the end of a page, behind prefills in different chunks."""
    ids, target, expected = tokens(name)[:COUNT], emulated(name).target, one_by_one(name)
    start = COUNT - 69
    counts = NUM_ROWS if name in ("gemma3", "llama-quant") else (2, 3, 8, 9, 17, 33)
    for chunk, sizes in ((start, counts), (7, (4, 65)), (33, (69,))):
        sequence = target.open_sequence()
        for first in range(0, start, chunk):
            for _ in target.prefill(sequence, ids[first : min(first + chunk, start)]):
                pass
        for num_rows in sizes:
            window = Window(sequence, ids[start : start + num_rows], start)
            got = target.verify([window], logits=True)
            np.testing.assert_array_equal(got.logits, expected[:num_rows], f"{num_rows} rows")
            np.testing.assert_array_equal(got.ids, expected[:num_rows].argmax(axis=1))
        target.close_sequence(sequence)


@pytest.mark.parametrize("name", GOLDENS)
def test_two_sequences(name):
    ids, target, expected = tokens(name), emulated(name).target, one_by_one(name)
    long, short = target.open_sequence(), target.open_sequence()
    for sequence, count in ((long, COUNT - 69), (short, 30)):
        for _ in target.prefill(sequence, ids[:count]):
            pass
    alone = target.verify([Window(short, ids[30:33], 30)], logits=True).logits
    windows = [Window(short, ids[30:33], 30), Window(long, ids[COUNT - 69 :][:9], COUNT - 69)]
    both = target.verify(windows, logits=True)
    np.testing.assert_array_equal(both.logits[:3], alone)
    np.testing.assert_array_equal(both.logits[3:], expected[:9])
    target.close_sequence(long)
    target.close_sequence(short)


CELLS = [
    *(("greedy", num_draft) for num_draft in (1, 3, 16)),
    ("nucleus", 3),
    ("penalties", 8),
]
MUSE = "muse-glimmer"  # which has no op that the others have not


@pytest.mark.parametrize(
    ("name", "setting", "num_draft"),
    [(name, *cell) for name in GOLDENS for cell in (CELLS[1:2] if name == MUSE else CELLS)],
)
def test_speculation_changes_nothing(name, setting, num_draft):
    llm = emulated(name)
    ids = golden_arrays(name)["tokens"].tolist()
    params = with_tokens(SETTINGS[setting], 20 + 2 * num_draft)
    plain = run(llm, ids[:16] + ids[4:11], params)
    cell = Cell(setting, "scripted", num_draft)
    for seed in range(8):
        same(run_mixed(llm, plain, params, cell, seed), plain)
        if cell.covered:
            return
    pytest.fail(f"never seen: {cell.missed}: {cell}")


@pytest.mark.parametrize("kv_type", ["f32", "q8_0"])
def test_other_types_of_keys_and_values(kv_type):
    llm = load("qwen3-quant", kv_type=kv_type)
    ids = golden_arrays("qwen3-quant")["tokens"].tolist()
    params = SamplingParams(max_tokens=24, ignore_eos=True)
    plain = llm.generate(ids[:30], params)
    got = llm.generate(ids[:30], params, spec=SpecOptions(type="ngram", governor=False))
    same(got, plain)
    assert got.stats.num_drafted > 0


def test_a_saved_session_goes_on(tmp_path):
    """Keys and values of sliding layers and others come back bit for bit."""
    llm = emulated("gemma3")
    ids = golden_arrays("gemma3")["tokens"].tolist()
    params = SamplingParams(max_tokens=6, ignore_eos=True)
    with llm.session() as session:
        begun = session.generate(ids[:40], params)
        session.save(tmp_path / "session")
        longer = [*ids[:40], *begun.token_ids, *ids[40:44]]
        expected = session.generate(longer, params)
    with Session.load(llm, tmp_path / "session") as session:
        got = session.generate(longer, params)
        same(got, expected)
    assert got.stats.cached_tokens == expected.stats.cached_tokens > 40


@pytest.mark.parametrize("order", [1, 2])
def test_another_order_of_threads_and_blocks(order):
    name = "llama-quant"
    llm = LLM(
        emulated(name).gguf,
        KernelOps(Emulator(seed=order)),
        context=512,
        kv_type="f16",
        spec=SpecOptions(type="none"),
        max_sequences=1,
    )
    got = rows_of(llm, tokens(name)[:COUNT], [3, 17, 1], prefilled=COUNT - 69)
    np.testing.assert_array_equal(got, one_by_one(name)[:21])


@pytest.mark.parametrize("device", ["cpu", "emulator"])
def test_programs_make_room_for_others(device, monkeypatch):
    """Of two that are kept, the one unused for longest is recorded anew."""
    monkeypatch.setattr(programs, "MAX_PROGRAMS", 2)
    llm = load("llama-quant", device)
    ids = tokens("llama-quant")[:COUNT]
    sizes = [1, 2, 1, 3, 1, 2, 3]
    got = rows_of(llm, ids, sizes, prefilled=COUNT - 69)
    assert [key[0] for key in llm.target._programs.recorded] == [2, 3]
    expected = rows_of(load("llama-quant", device), ids, [1] * sum(sizes), prefilled=COUNT - 69)
    np.testing.assert_array_equal(got, expected)


def frozen_tokens(launcher):
    def embed(device, weight, tokens, **options):
        launcher(device, weight, tokens.copy(), **options)

    return embed


def frozen_positions(launcher):
    def attention(device, q, cache, step, **options):
        frozen = SimpleNamespace(
            positions=step.positions.copy(),
            row_seqs=step.row_seqs,
            row_offsets=step.row_offsets,
            lowest=step.lowest,
            page_table=step.page_table,
            ring_table=step.ring_table,
        )
        launcher(device, q, cache, frozen, **options)

    return attention


@pytest.mark.parametrize(
    ("op", "fault"), [("embed", frozen_tokens), ("attention", frozen_positions)]
)
def test_a_step_value_that_a_program_froze_is_told(op, fault, monkeypatch):
    """What a graph would do with a value that its launcher took as a scalar."""
    expected = one_by_one("llama-quant")[:2]
    monkeypatch.setattr(kernels, op, fault(getattr(kernels, op)))
    llm = load("llama-quant")
    got = rows_of(llm, tokens("llama-quant")[:COUNT], [1, 1], prefilled=COUNT - 69)
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", ["gemma3", "qwen3-quant"])
def test_the_cuda_device_gives_the_same_from_graphs(name, monkeypatch):
    cupy = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    llm = load(name, "cuda")
    ids = golden_arrays(name)["tokens"].tolist()
    params = SamplingParams(max_tokens=16, ignore_eos=True)
    for setting in (params, replace(params, temperature=0.8, seed=5)):
        expected = emulated(name).generate(ids[:30], setting)
        for spec in (None, SpecOptions(type="ngram", num_draft=4, governor=False)):
            same(llm.generate(ids[:30], setting, spec=spec), expected)
    assert cupy.num_graph_launches > 30


def test_a_greedy_step_is_one_copy_there_one_launch_and_one_copy_back(monkeypatch):
    cupy = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    llm = load("llama-quant", "cuda")
    ids = golden_arrays("llama-quant")["tokens"].tolist()
    llm.generate(ids[:9], SamplingParams(max_tokens=3))  # kernels have run, and there is a graph
    stream = llm.stream(ids[:9], SamplingParams(max_tokens=5, ignore_eos=True), spec=None)
    next(stream)
    cupy.launches.clear()
    before = (cupy.num_uploads, cupy.num_graph_launches, cupy.num_downloads)
    list(stream)
    after = (cupy.num_uploads, cupy.num_graph_launches, cupy.num_downloads)
    assert np.subtract(after, before).tolist() == [4, 4, 4]
    assert cupy.launches == []
