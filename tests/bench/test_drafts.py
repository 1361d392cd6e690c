"""Drafts of block drafters beside their floors: phases, what they touch, and the command."""

import json
from math import prod

import gguf as gguf_files
import numpy as np
import pytest

from specrt.bench import draft_results, draft_steps, drafts, floor_steps
from specrt.bench.__main__ import main
from specrt.bench.draft_floors import DraftTouched, draft_touched, phase_ops
from specrt.bench.draft_results import apart, bounds_of, drafts_of, first_tokens_of, phases_of
from specrt.bench.draft_steps import DraftKey, DraftRound, FirstToken, Trace
from specrt.bench.floor_steps import SpeedKey
from specrt.bench.ops_around import HeardOps
from specrt.bench.touched import Touched
from specrt.drafters.dflash_head import DFlashHead
from specrt.gguf.reader import open_gguf
from specrt.host import HostOps
from specrt.speculative.runtime import Runtime
from tests.models_on_disk import DRAFTER_GOLDENS, golden_path, load_golden
from tests.rewriting import rewritten

SELECTING = ["dflash2-muse", "dflash2-qwen35", "dflash2-qwen35-quant"]
UNREAD = ("d2t", "rope_freqs.weight", "token_embd.weight", "conf_proj.weight", "conf_proj.bias")
TABLES = ("selector_predecessor.weight", "selector_successor.weight")
TABLES += ("markov_w1.weight", "markov_w2.weight")


def head_of(name):
    llm = load_golden(DRAFTER_GOLDENS[name], drafter=name, device="cpu", spec="block")
    return llm, llm.speculation.loaded_head


def arguments(name, *more):
    model, drafter = golden_path(DRAFTER_GOLDENS[name]), golden_path(name)
    return ["drafts", "--model", str(model), "--draft-model", str(drafter), *more]


@pytest.fixture(autouse=True)
def small_cache(monkeypatch):
    monkeypatch.setattr(floor_steps, "largest_cache", lambda: 1 << 18)


@pytest.mark.parametrize("name", sorted(DRAFTER_GOLDENS))
def test_a_draft_reads_each_weight_of_the_file_once(name):
    """Beside the borrowed head, two rows of the embedding, keys and values, and rows of tables."""
    llm, head = head_of(name)
    file, weights = llm.head_file, head.weights
    touched = draft_touched(weights, "f32", cached=40, waiting=3)
    left_out = (*UNREAD, *TABLES)
    own = [
        tensor.nbytes
        for key, tensor in file.tensors.items()
        if key not in left_out and not key.endswith("output_scale.weight")
    ]
    expected = sum(own)
    embeds = file if "token_embd.weight" in file.tensors else llm.gguf
    expected += 2 * embeds.tensors["token_embd.weight"].raw.shape[-1]
    if "output.weight" not in file.tensors:
        tied = "token_embd.weight" if "output.weight" not in llm.gguf.tensors else "output.weight"
        expected += llm.gguf.tensors[tied].nbytes
    windows, size = weights.keys.windows, head.block_size
    seen = sum(min(window - 1, 40) + size if window else 40 + size for window in windows)
    expected += 2 * seen * weights.dims.kv_heads[0] * weights.dims.head_dim * 4
    rows = head.num_drafting
    if name in SELECTING:
        k = file.get("dflash.selector_top_k", int)
        first, second = (file.tensors[key].raw.shape[-1] for key in TABLES[:2])
        expected += (1 + k * (rows - 1)) * first + k * rows * second
    elif "markov_w1.weight" in file.tensors:
        first, second = (file.tensors[key] for key in TABLES[2:])
        expected += rows * (first.raw.shape[-1] + second.nbytes)
    assert touched.num_bytes == expected


def test_two_phases_read_the_projections_of_keys_and_values():
    _, head = head_of("dflash2-qwen35")
    touched = draft_touched(head.weights, "f16", cached=40, waiting=3)
    both = sum(
        weight.raw.nbytes
        for layer in head.weights.layers
        for weight in (layer.attention.k, layer.attention.v)
    )
    sum_of_phases = sum(phase.num_bytes for phase in touched.phases.values())
    assert both > 0 and touched.num_bytes == sum_of_phases - both


def test_products_go_with_the_rows_and_twice_for_two_terms():
    _, head = head_of("dflash2-qwen35-quant")
    one, four = (
        draft_touched(head.weights, "f16", 40, waiting).phases["inject"] for waiting in (1, 4)
    )
    assert four.int_products == 4 * one.int_products and four.num_bytes == one.num_bytes
    encoder = head.weights.encoder
    remembered = [
        (prod(weight.shape), 2 if weight.form == "int8x2" else 1)
        for layer in head.weights.layers
        for weight in (layer.attention.k, layer.attention.v)
    ]
    assert encoder.form == "int8x2"
    assert one.int_products == 2 * prod(encoder.shape) + sum(n * terms for n, terms in remembered)


def test_a_window_bounds_the_keys_of_a_block():
    _, head = head_of("dflash2-qwen35")
    near, far = (draft_touched(head.weights, "f16", c, 1).phases["block"] for c in (100, 400))
    assert near == far
    _, head = head_of("dflash-qwen35")
    near, far = (draft_touched(head.weights, "f16", c, 1).phases["block"] for c in (100, 400))
    assert near.num_bytes < far.num_bytes and near.float_products < far.float_products


def test_where_a_program_is_cut():
    ops = [
        ("load_rows", 1.0), ("linear", 2.0), ("embed", 4.0), ("linear", 8.0), ("linear", 16.0),
        ("head", 32.0), ("head_reduce", 64.0), ("linear", 128.0), ("top_k", 256.0),
        ("lattice", 512.0),
    ]  # fmt: skip
    assert phase_ops(ops) == {
        ("inject", "load_rows"): (1, 1.0),
        ("inject", "linear"): (1, 2.0),
        ("block", "embed"): (1, 4.0),
        ("block", "linear"): (2, 24.0),
        ("head", "head"): (1, 32.0),
        ("head", "head_reduce"): (1, 64.0),
        ("lattice", "linear"): (1, 128.0),
        ("top-k", "top_k"): (1, 256.0),
        ("lattice", "lattice"): (1, 512.0),
    }


def test_programs_tell_their_phases_to_who_listens():
    ops = HeardOps(HostOps(1))
    x, y = (ops.buffer((2, 8), np.float32) for _ in range(2))
    x[:] = 3
    with ops.record() as program:
        ops.copy(x, out=y)
        ops.scale(y, 2.0, out=y)
    program.run()
    assert (y == 6).all()
    y[:] = 0
    with ops.listening() as heard:
        program.run()
    program.run()
    assert (y == 6).all() and [name for name, _ in heard] == ["copy", "scale"]
    assert all(seconds > 0 for _, seconds in heard)


KEY = DraftKey(40, 2)
AMOUNTS = {SpeedKey(what, 1): 100 for what in ("memory", "as much as a step")}
AMOUNTS |= {SpeedKey(what, 1): 100 for what in ("integers", "floats")}
TOUCHED = {KEY: DraftTouched({"inject": Touched(30), "block": Touched(80, 0, 400)}, 100)}


def rounds_of(whole):
    """Two rounds: 10 bytes a second, then 20; 40 products a second."""
    found = []
    for speed, seconds in ((10, whole), (20, whole / 2)):
        one = {key: 100 / speed for key in AMOUNTS}
        one |= {SpeedKey(what, 1): 100 / 40 for what in ("integers", "floats")}
        one |= {KEY: seconds}
        ops = [("linear", 3.0), ("embed", 1.0), ("linear", 5.0)]
        trace = Trace(12.0, ops, 1.0)
        found.append(DraftRound(one, {DraftKey(40, 2, timed=True): trace}))
    return found


def test_a_draft_is_held_to_the_bytes_of_its_own_round(monkeypatch):
    monkeypatch.setattr(draft_results, "largest_cache", lambda: 99)
    (draft,) = drafts_of(rounds_of(20.0), AMOUNTS, TOUCHED, 1.5)
    assert (draft.factor.low, draft.factor.high) == pytest.approx((2, 2))
    assert draft.byte_floor_ms == pytest.approx(7500)
    assert draft.roofline_ms == pytest.approx(1e3 * ((3 + 10) + (1.5 + 10)) / 2)
    assert draft.phases_share == pytest.approx(12 / 15) and draft.bar == 1.5
    (bound,) = bounds_of([draft], None)
    assert not bound.holds and "byte floors" in bound.name
    (line,) = apart([draft])
    assert "0.80" in line
    assert apart(drafts_of(rounds_of(16.0), AMOUNTS, TOUCHED, 1.5)) == []


def test_what_a_cache_could_hold_has_no_bar(monkeypatch):
    monkeypatch.setattr(draft_results, "largest_cache", lambda: 100)
    (draft,) = drafts_of(rounds_of(20.0), AMOUNTS, TOUCHED, 1.5)
    assert draft.bar is None and bounds_of([draft], None) == []


def test_phases_sum_to_what_is_timed_from_outside():
    phases = {one.phase: one for one in phases_of(rounds_of(20.0), AMOUNTS, TOUCHED)}
    assert {name: one.ms.median for name, one in phases.items()} == pytest.approx(
        {"inject": 3000, "block": 6000, "walk": 1000, "host": 2000}
    )
    assert phases["walk"].touched is None and phases["host"].factor is None
    assert phases["block"].roofline_ms == pytest.approx(10_000)
    assert phases["block"].factor == pytest.approx(0.6)


def test_first_tokens_are_compared_round_by_round():
    rounds = [
        {"none": FirstToken(2.0, 0.0, 3.0), "block": FirstToken(3.0, 0.5, 4.5)},
        {"none": FirstToken(4.0, 0.0, 6.0), "block": FirstToken(4.0, 0.5, 6.0)},
    ]
    found = first_tokens_of(512, rounds)
    assert (found.ratio.low, found.ratio.median, found.ratio.high) == (1.0, 1.25, 1.5)
    assert found.prefill_ratio.high == 1.5 and found.following_ms.median == 500
    (bound,) = bounds_of([], found)
    assert bound.holds and bound.bar == 1.25


@pytest.mark.parametrize("name", sorted(DRAFTER_GOLDENS))
def test_the_command(name, tmp_path, capsys):
    file = tmp_path / "drafts.json"
    flags = ["--context", "20,70", "--prompt", "40", "--rounds", "2", "--threads", "2"]
    assert main(arguments(name, *flags, "--json", str(file))) == 0
    printed = capsys.readouterr().out
    assert "Its phases" in printed and "first token" in printed and "Bounds" in printed
    saved = json.loads(file.read_text())
    assert saved["complete"] and saved["bench"] == "drafts" and len(saved["speeds"]) == 4
    with open_gguf(golden_path(name)) as drafter:
        size = drafter.get("dflash.block_size", int)
        chained = "markov_w1.weight" in drafter.tensors
        scored = "conf_proj.weight" in drafter.tensors
    waiting = [(one["cached"], one["waiting"]) for one in saved["drafts"]]
    assert waiting == [(cached, rows) for cached in (20, 70) for rows in sorted({1, 4, size})]
    picked = ["lattice"] if name in SELECTING else ["markov"] if chained else []
    top = [] if scored else ["top-k"]
    phases = {(one["cached"], one["waiting"], one["phase"]) for one in saved["phases"]}
    names = ["inject", "block", "head", *top, *picked, "walk", "host"]
    assert phases == {(*key, phase) for key in waiting for phase in names}
    for one in saved["phases"]:
        own = [op["ms"] for op in saved["ops"] if all(op[k] == one[k] for k in KEYS)]
        assert bool(own) == (one["phase"] not in ("walk", "host"))
        if one["touched"] is not None:
            assert 0 < one["byte_floor_ms"] <= one["roofline_ms"] * 1.0001
    for draft in saved["drafts"]:
        assert draft["byte_floor_ms"] > 0 and draft["bar"] is None and draft["phases_share"] > 0
    assert saved["first_token"]["tokens"] == 40 and saved["first_token"]["following_ms"]["low"] > 0
    assert [bound["bar"] for bound in saved["bounds"]] == [1.25]
    assert str(tmp_path) not in file.read_text()


KEYS = ("cached", "waiting", "phase")


def test_a_draft_that_depends_on_the_rows_that_wait_has_no_time(monkeypatch, capsys):
    draft_block = DFlashHead.draft_block

    def wrong(self, contexts):
        (context,) = contexts
        waiting = context.sequence.cursor.cache_len - (
            context.sequence.drafter_states[self].injected
        )
        (draft,) = draft_block(self, contexts)
        return [draft._replace(tokens=[draft.tokens[0] ^ (waiting == 4), *draft.tokens[1:]])]

    monkeypatch.setattr(DFlashHead, "draft_block", wrong)
    assert main(arguments("dflash2-qwen35", "--context", "20", "--rounds", "1")) == 1
    captured = capsys.readouterr()
    assert "depends on how many rows wait" in captured.err and captured.out == ""


def test_a_drafter_that_changes_the_first_token_is_told(monkeypatch, capsys):
    step = Runtime.step

    def wrong(self, requests):
        (accepted,) = step(self, requests)
        changed = bool(requests[0].speculators)
        tokens = [accepted.tokens[0] ^ changed, *accepted.tokens[1:]]
        return [accepted._replace(tokens=tokens)]

    monkeypatch.setattr(Runtime, "step", wrong)
    flags = ["--context", "20", "--prompt", "20", "--rounds", "1"]
    assert main(arguments("dflash2-qwen35", *flags)) == 1
    assert "changes the first token" in capsys.readouterr().err


def test_an_interrupt_keeps_the_rounds_before_it(tmp_path, monkeypatch):
    rounds_of = draft_steps.rounds_of

    def interrupted(calls, number, *clock):
        yield from rounds_of(calls, 1, *clock)
        if number > 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(draft_steps, "rounds_of", interrupted)
    file = tmp_path / "drafts.json"
    flags = ["--context", "20", "--rounds", "3", "--json", str(file)]
    assert main(arguments("dflash2-qwen35", *flags)) == 130
    saved = json.loads(file.read_text())
    assert saved["complete"] is False and saved["settings"]["rounds"] == 1
    assert len(saved["drafts"]) == 3 and saved["first_token"] is None


def test_the_rows_that_wait_can_be_named(tmp_path):
    file = tmp_path / "drafts.json"
    flags = ["--context", "30", "--waiting", "2,9", "--prompt", "20", "--rounds", "1"]
    assert main(arguments("dflash2-qwen35", *flags, "--json", str(file))) == 0
    saved = json.loads(file.read_text())
    assert [one["waiting"] for one in saved["drafts"]] == [2, 9]


def test_a_nextn_head_is_declined(tmp_path, capsys):
    source = golden_path("qwen35-accept")
    with open_gguf(source) as file:
        trunk = [name for name in file.tensors if not name.startswith("blk.4.")]
    unsigned = gguf_files.GGUFValueType.UINT32
    drafter = rewritten(
        source,
        tmp_path / "nextn.gguf",
        keys={"qwen35.nextn_predict_layers": (1, unsigned)},
        drop=tuple(trunk),
    )
    assert main(["drafts", "--model", str(source), "--draft-model", str(drafter)]) == 2
    captured = capsys.readouterr()
    assert "drafts token by token" in captured.err and captured.out == ""


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--context", "600"], "expected at most 512"),
        (["--context", "3"], "expected at least 8"),
        (["--waiting", "10"], "expected at most 9"),
        (["--waiting", "0"], "expected an integer >= 1"),
        (["--bar", "0"], "expected a number > 0"),
        (["--prompt", "x"], "expected an integer >= 1"),
        (["--model", "nothing.gguf"], "nothing.gguf"),
        (["--json", "no/such/folder/x.json"], "folder that exists"),
        (["--device", "cpu"], "unrecognized"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_2(capsys, flags, message):
    assert main(arguments("dflash2-qwen35", *flags)) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.out == ""
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1


def test_a_drafter_is_needed(capsys):
    assert main(["drafts", "--model", str(golden_path("qwen35"))]) == 2
    assert "--draft-model" in capsys.readouterr().err
    assert (drafts.CONTEXT, drafts.PROMPT, draft_results.BAR) == (512, 512, 1.5)
