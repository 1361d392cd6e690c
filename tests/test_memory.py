"""The memory plan is what a loaded model holds, to the byte."""

import math

import numpy as np
import pytest

import specrt
from specrt import SamplingParams
from specrt.errors import ContextError, OptionError
from specrt.gguf.reader import open_gguf
from specrt.host import HostOps
from specrt.kernels import KernelOps
from specrt.memory import memory_plan
from specrt.options import MAX_DRAFT
from specrt.state.messages import Window
from tests.models_on_disk import (
    DRAFTER_GOLDENS,
    GOLDENS,
    golden_path,
    load_golden,
    real_model,
)
from tests.tiny_model import WIDTH, write_tiny_model


@pytest.fixture
def made(monkeypatch):
    """The bytes of every buffer that an op set really made, in order."""
    sizes = []

    def counted(real):
        def make(ops, shape, dtype):
            array = real(ops, shape, dtype)
            sizes.append(array.nbytes)
            return array

        return make

    for name in ("buffer", "pages"):
        monkeypatch.setattr(HostOps, name, counted(getattr(HostOps, name)))
    return sizes


@pytest.mark.parametrize("name", ["gemma3", "qwen3-quant", "qwen35moe", "muse-glimmer"])
def test_a_model_on_the_emulator_holds_what_the_plan_says(name, monkeypatch):
    sizes, real = [], KernelOps.buffer

    def buffer(ops, shape, dtype):
        array = real(ops, shape, dtype)
        sizes.append(array.nbytes)
        return array

    monkeypatch.setattr(KernelOps, "buffer", buffer)
    options = {"kv_type": "q8_0", "spec": "none"}  # nothing has run yet
    llm = specrt.load(golden_path(name), device="emulator", verbose=False, **options)
    held = sum(sizes)
    sizes.clear()
    plan = llm.plan
    assert sum(sizes) == 0
    assert plan.kv == kv_bytes(llm) > 0
    assert plan.state == state_bytes(llm)
    assert plan.buffers == held - plan.kv - plan.state > 0
    assert plan.weights == tile_bytes(llm)


def tile_bytes(llm):
    """Of matrices in tiles, the embedding's too where it is one."""
    trunk = llm.target.trunk
    matrices = {*trunk.weights, trunk.output, trunk.token_embd}
    return sum(matrix.tiles.nbytes for matrix in matrices if hasattr(matrix, "tiles"))


def kv_bytes(llm):
    return held_bytes(llm, "k", "v", "k_scale", "v_scale")


def state_bytes(llm):
    return held_bytes(llm, "states", "tails", "log_u", "log_k", "log_delta", "log_decay")


def held_bytes(llm, *names):
    arrays = [getattr(cache, name, None) for cache in llm.target.caches for name in names]
    return sum(array.nbytes for array in arrays if array is not None)


@pytest.mark.parametrize(
    "options",
    [
        {"kv_type": "f32", "max_sequences": 1},
        {"kv_type": "f16", "context": 200},
        {"kv_type": "q8_0", "max_sequences": 7},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", GOLDENS)
def test_a_loaded_model_holds_what_the_plan_says(name, options, made):
    llm = specrt.load(golden_path(name), verbose=False, spec="ngram", **options)
    held = sum(made)
    made.clear()
    plan = llm.plan
    assert sum(made) == 0
    assert plan.drafter == 0
    assert plan.kv == kv_bytes(llm) > 0
    assert plan.state == state_bytes(llm)
    assert plan.buffers == held - plan.kv - plan.state > 0
    assert plan.weights == tile_bytes(llm) + llm.target.trunk.token_embd.raw.nbytes
    with open_gguf(golden_path(name)) as gguf:
        assert memory_plan(gguf, **options).rows()[:-1] == plan.rows()[:-1]


@pytest.fixture
def weighed(made, monkeypatch):
    """The bytes of every buffer, matrix and table that an op set really made, in order."""

    def counted(real, bytes_of):
        def make(ops, *arguments, **keywords):
            weight = real(ops, *arguments, **keywords)
            made.append(bytes_of(weight))
            return weight

        return make

    monkeypatch.setattr(HostOps, "weight", counted(HostOps.weight, lambda one: one.tiles.nbytes))
    monkeypatch.setattr(HostOps, "table", counted(HostOps.table, lambda one: one.raw.nbytes))
    return made


@pytest.mark.parametrize("name", ["dflash-qwen35", "dflash2-qwen35-quant", "dspark-qwen3-bonus",
                                  "dflash-options-qwen3", "qwen35"])  # fmt: skip
def test_a_drafter_holds_what_the_plan_says(name, weighed):
    """What the target's own head would need is not there."""
    target, drafter = DRAFTER_GOLDENS.get(name, name), None if name == "qwen35" else name
    llm = load_golden(target, drafter, context=200, kv_type="f16", max_sequences=2)
    weighed.clear()
    options = specrt.SpecOptions(type="block" if drafter else "draft-head", governor=False)
    llm.generate([1, 2] * 40, SamplingParams(max_tokens=4, ignore_eos=True), spec=options)
    held, head = sum(weighed), llm.speculation.loaded_head
    assert llm.plan.drafter == held > 0
    assert dict(llm.plan.rows())["drafter"].endswith(f"({head.title})")


@pytest.mark.parametrize("name", ["dflash2-muse", "dspark-qwen3", "qwen35"])
def test_a_plan_for_kernels_has_the_drafter_too(name):
    with open_gguf(golden_path(DRAFTER_GOLDENS.get(name, name))) as gguf:
        head = gguf if name == "qwen35" else open_gguf(golden_path(name))
        plan = memory_plan(gguf, 200, max_sequences=2, device="emulator", head=head)
    assert plan.drafter > sum(tensor.nbytes for tensor in head.tensors.values()) / 4
    assert plan.drafter_kind


def test_all_sequences_count(tmp_path):
    with open_gguf(write_tiny_model(tmp_path / "tiny.gguf")) as gguf:
        one, four = (memory_plan(gguf, max_sequences=count) for count in (1, 4))
    assert four.kv == 4 * one.kv
    assert four.kv_per_token == one.kv_per_token == 2 * 2 * 2 * 2 * 32
    assert four.needed - one.needed > 3 * one.kv
    labels = dict(four.rows())
    assert labels["KV at context 512"].endswith("in 4 sequences")
    assert {"weights", "work buffers", "logits of sampled tokens", "headroom"} <= set(labels)


@pytest.mark.parametrize("max_sequences", [1, 2, 7])
def test_logits_are_those_that_a_step_can_reach(tmp_path, made, max_sequences):
    path = write_tiny_model(tmp_path / "tiny.gguf")
    llm = specrt.load(path, max_sequences=max_sequences, verbose=False)
    made.clear()
    llm.generate("a", SamplingParams(max_tokens=2))
    assert sum(made) == 0
    llm.generate("a", SamplingParams(max_tokens=2, temperature=1.0))
    rows = max_sequences * (MAX_DRAFT + 1)
    assert llm.plan.logits == rows * llm.target.vocab_size * 4 == sum(made)
    windows = [Window(llm.target.open_sequence(), [5] * 65, 0) for _ in range(max_sequences)]
    assert len(llm.target.verify(windows, logits=True).logits) == rows
    windows[0].tokens.append(5)
    with pytest.raises(ContextError, match=f"{rows + 1} rows with logits .* at most {rows}"):
        llm.target.verify(windows, logits=True)
    assert len(llm.target.verify(windows).ids) == rows + 1


@pytest.mark.parametrize("context", [0, -1, 513, 10**12])
def test_an_impossible_context(tmp_path, context):
    path = write_tiny_model(tmp_path / "tiny.gguf")
    with open_gguf(path) as gguf, pytest.raises(OptionError, match="expected 1 to 512"):
        memory_plan(gguf, context)


def test_the_headroom_is_what_was_there_before_loading(tmp_path, monkeypatch):
    """Else what is loaded would count twice."""
    available = iter([2**40, 5])
    monkeypatch.setattr("specrt.llm.available_memory", lambda device: next(available))
    llm = specrt.load(write_tiny_model(tmp_path / "tiny.gguf"), verbose=False)
    assert llm.plan.available == 2**40
    assert dict(llm.plan.rows())["headroom"].startswith("1,048,")


def test_a_table_counts_once_and_a_tied_head_as_tiles_too(tmp_path):
    plans = []
    for drop in ((), ("output.weight",)):
        path = write_tiny_model(tmp_path / f"{len(drop)}.gguf", drop=drop)
        plans.append([memory_plan(open_gguf(path), device=d).weights for d in ("cpu", "cuda")])
    (cpu, cuda), (tied_cpu, tied_cuda) = plans
    assert cpu == tied_cpu  # rows of the table, and tiles of the head
    assert tied_cpu - tied_cuda == 265 * WIDTH * 2  # of the file
    assert cuda - tied_cuda == 272 * WIDTH * 2  # whole tiles


def test_planning_holds_nothing(tmp_path):
    """A plan for what no machine has: only counting."""
    path = write_tiny_model(tmp_path / "tiny.gguf", context=2**20)
    with open_gguf(path) as gguf:
        plan = memory_plan(gguf, 2**20, "f32", 7)
    assert plan.kv == 7 * 2**20 * math.prod((2, 2, 2, 32, 4)) > 2**32


@pytest.mark.real_model
@pytest.mark.parametrize("name", ["smollm2-135m", "gemma3-270m"])
def test_real_models(name, made):
    llm = specrt.load(real_model(name), context=512, verbose=False)
    held = np.sum(made)
    assert (llm.plan.kv, llm.plan.kv + llm.plan.buffers) == (kv_bytes(llm), held)
    assert llm.plan.weights == tile_bytes(llm) + llm.target.trunk.token_embd.raw.nbytes
    stored = sum(tensor.nbytes for tensor in llm.gguf.tensors.values())
    assert 0.99 < tile_bytes(llm) / stored < 1.02
