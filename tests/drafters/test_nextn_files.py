"""Which files have a NextN head that runs here, and what the others are told."""

from threading import Thread

import gguf
import numpy as np
import pytest

import specrt
from specrt import SamplingParams
from specrt.errors import MismatchError, UnsupportedError
from specrt.gguf.reader import open_gguf
from specrt.memory import memory_plan
from tests.models_on_disk import golden_arrays, golden_path
from tests.rewriting import rewritten

GOLDEN = golden_path("qwen35-accept")
BLOCK = "blk.4."
NUM_NEXTN = "qwen35.nextn_predict_layers"
U32 = gguf.GGUFValueType.UINT32
PROMPT = golden_arrays("qwen35-accept")["tokens"].tolist()[:24]
PARAMS = SamplingParams(max_tokens=12, ignore_eos=True)


def names(path=GOLDEN, *, of_head):
    with open_gguf(path) as file:
        return tuple(name for name in file.tensors if name.startswith(BLOCK) == of_head)


def load(path, **options):
    return specrt.load(path, verbose=False, kv_type="f32", **options)


def drafted(llm, spec="draft-head"):
    got = llm.generate(PROMPT, PARAMS, spec=specrt.SpecOptions(spec, pmin=0.0, governor=False))
    plain = llm.generate(PROMPT, PARAMS, spec=None)
    assert got.token_ids == plain.token_ids
    return got.stats


def declined(path):
    """The reason, which auto tells too and n-grams do not mind."""
    llm = load(path)
    stats = drafted(llm)
    assert stats.num_drafted == 0 and stats.speculator is None
    (reason,) = stats.declined
    assert drafted(llm, "auto").declined == [reason]
    assert drafted(llm, "auto").speculator == "ngram"
    assert not drafted(llm, "ngram").declined
    return reason


def test_auto_has_the_head_behind_ngram():
    llm = load(GOLDEN)
    assert llm.generate(PROMPT, PARAMS).stats.speculator == "ngram,draft-head"
    assert drafted(llm).num_accepted


def test_a_promise_without_tensors_is_declined(tmp_path):
    path = rewritten(GOLDEN, tmp_path / "m.gguf", drop=names(of_head=True))
    assert f"{NUM_NEXTN} = 1, but blk.4.nextn.* are not in the file" in declined(path)


@pytest.mark.parametrize("name", ["nextn.eh_proj.weight", "attn_q.weight", "ffn_down.weight"])
def test_a_head_that_lacks_a_tensor_is_declined(tmp_path, name):
    path = rewritten(GOLDEN, tmp_path / "m.gguf", drop=(BLOCK + name,))
    assert f"tensor '{BLOCK}{name}' is missing" in declined(path)


def test_a_head_with_a_tensor_that_nobody_applies_is_declined(tmp_path):
    extra = {f"{BLOCK}nextn.gate.weight": np.ones(8, np.float32)}
    path = rewritten(GOLDEN, tmp_path / "m.gguf", extra=extra)
    assert "'blk.4.nextn.gate.weight'" in declined(path)


def test_more_than_one_block_is_declined(tmp_path):
    with open_gguf(GOLDEN) as file:
        extra = {
            name.replace(BLOCK, "blk.5."): file.tensors[name].raw.view(np.float16)
            if file.tensors[name].type.name == "F16"
            else file.tensors[name].raw.view(np.float32)
            for name in names(of_head=True)
        }
        keys = {NUM_NEXTN: (2, U32), "qwen35.block_count": (6, U32)}
        path = rewritten(GOLDEN, tmp_path / "m.gguf", keys=keys, extra=extra)
    assert f"{NUM_NEXTN} = 2, expected 1" in declined(path)


def test_a_file_without_a_head_has_none(tmp_path):
    keys = {NUM_NEXTN: (0, U32), "qwen35.block_count": (4, U32)}
    path = rewritten(GOLDEN, tmp_path / "m.gguf", keys=keys, drop=names(of_head=True))
    llm = load(path)
    assert "no draft head is attached" in drafted(llm).declined[0]
    got = llm.generate(PROMPT, PARAMS)
    assert got.stats.speculator == "ngram" and not got.stats.declined


@pytest.mark.parametrize("with_embedding", [True, False])
def test_a_block_alone_in_its_file_drafts_for_the_trunk(tmp_path, with_embedding):
    trunk = rewritten(GOLDEN, tmp_path / "trunk.gguf", drop=names(of_head=True))
    kept = {"token_embd.weight"} if with_embedding else set()
    drop = tuple(name for name in names(of_head=False) if name not in kept)
    head = rewritten(GOLDEN, tmp_path / "head.gguf", drop=drop)
    stats = drafted(load(trunk, draft_model=head))
    whole = drafted(load(GOLDEN))
    assert (stats.num_drafted, stats.num_accepted) == (whole.num_drafted, whole.num_accepted)
    with pytest.raises(MismatchError):
        load(head)
    with pytest.raises(MismatchError, match="the NextN block of qwen35"):
        load(golden_path("llama"), draft_model=head)
    with pytest.raises(MismatchError, match=r"embedding_length|holds"):
        load(golden_path("qwen35-quant"), draft_model=head)


def test_what_is_wrong_with_an_attached_file_is_an_error(tmp_path):
    drop = (*names(of_head=False), f"{BLOCK}nextn.eh_proj.weight")
    head = rewritten(GOLDEN, tmp_path / "head.gguf", drop=drop)
    with pytest.raises(MismatchError, match=r"blk.4.nextn.eh_proj.weight' is missing"):
        load(GOLDEN, draft_model=head)
    drop = names(of_head=False)
    for number, name in enumerate((f"{BLOCK}gate.weight", "fc.weight")):
        extra = {name: np.ones(8, np.float32)}
        more = rewritten(GOLDEN, tmp_path / f"more{number}.gguf", drop=drop, extra=extra)
        with pytest.raises(UnsupportedError, match=f"'{name}'"):
            load(GOLDEN, draft_model=more)
    with pytest.raises(MismatchError, match="expected a drafter"):
        load(GOLDEN, draft_model=GOLDEN)


def moved(path, number):
    """The block alone in a file, under another number."""
    tensors = {}
    with open_gguf(GOLDEN) as file:
        for name in names(of_head=True):
            kind = np.float16 if file.tensors[name].type.name == "F16" else np.float32
            tensors[name.replace(BLOCK, f"blk.{number}.")] = file.tensors[name].raw.view(kind)
        keys = {"qwen35.block_count": (number + 1, U32)}
        drop = names(of_head=True) + names(of_head=False)
        return rewritten(GOLDEN, path, keys=keys, extra=tensors, drop=drop)


def test_a_block_alone_has_a_higher_number_than_there_are_tensors(tmp_path):
    head = moved(tmp_path / "head.gguf", 40)
    whole = drafted(load(GOLDEN))
    stats = drafted(load(GOLDEN, draft_model=head))
    assert (stats.num_drafted, stats.num_accepted) == (whole.num_drafted, whole.num_accepted)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (NUM_NEXTN, (0, U32)),
        ("qwen35.rope.freq_base", (10.0, gguf.GGUFValueType.FLOAT32)),
        ("qwen35.attention.key_length", (16, U32)),
    ],
)
def test_a_block_alone_that_states_something_else_is_refused(tmp_path, key, value):
    drop = names(of_head=False)
    head = rewritten(GOLDEN, tmp_path / "head.gguf", keys={key: value}, drop=drop)
    with pytest.raises(MismatchError, match=key):
        load(GOLDEN, draft_model=head)


def test_a_second_thread_may_be_the_first_to_need_the_head():
    llm, errors = load(GOLDEN, spec="none"), []

    def run(spec):
        try:
            drafted(llm, spec)
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=run, args=(spec,)) for spec in ("ngram", "draft-head") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and llm.speculation.loaded_head


def test_weights_are_loaded_only_where_somebody_drafts_with_them():
    llm = load(GOLDEN, spec="ngram")
    assert not llm.speculation.loaded_head and llm.plan.drafter == 0
    assert drafted(llm).num_accepted
    assert llm.speculation.loaded_head
    with open_gguf(GOLDEN) as file:
        head_bytes = sum(file.tensors[name].nbytes for name in names(of_head=True))
        plan = memory_plan(file, kv_type="f32", head=file)
    assert plan.drafter > head_bytes
    assert load(GOLDEN).plan.drafter == plan.drafter
