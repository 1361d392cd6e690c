"""Other ways of taking recurrent rows back: each leaves the very states of one row at a time."""

from functools import partial

import numpy as np
import pytest
from emulated import needs_emulator

from specrt.bench.ops_around import StatesOut, TimedOps
from specrt.bench.rollback_targets import ReplayTarget, SnapshotTarget
from specrt.host import HostOps
from specrt.plain_calls import OPS, PlainCalls
from specrt.state.messages import FINAL_HIDDEN, Window
from specrt.state.recurrent import RecurrentLayer
from tests import test_mirror
from tests.models.test_recurrent import EVERY, FEW, LONG, plain, shuffled, step
from tests.models_on_disk import load_golden

MOST_ROWS = 8
KINDS = {
    "snapshots": partial(SnapshotTarget, least_rows=2, most_rows=MOST_ROWS),
    "settled": partial(SnapshotTarget, least_rows=1, most_rows=1),
    "replay": ReplayTarget,
}


def spoiled(kind, device="cpu"):
    """A target with garbage in all that it keeps of sequences."""
    llm = load_golden("qwen35", device=device)
    options = {"context": llm.context, "kv_type": "f32", "max_sequences": 2}
    target = KINDS[kind](llm.target.trunk, llm.target.ops, **options)
    for cache in target.caches:
        for array in vars(cache).values():
            if isinstance(array, np.ndarray):
                array.view(np.uint8)[...] = 0xFF
    return target


def prefill(target, right, count):
    sequence = target.open_sequence()
    for _ in target.prefill(sequence, right.ids[:count]):
        pass
    return sequence


@pytest.mark.parametrize("prefilled", [0, 1, 70])
@pytest.mark.parametrize("kind", KINDS)
def test_windows_of_which_parts_are_kept(kind, prefilled):
    """Behind rows that were logged, that were not, and behind none; some windows are long."""
    target, right = spoiled(kind), plain("cpu")
    sequence = prefill(target, right, prefilled)
    for window in shuffled(EVERY + LONG[:2], 1):
        step(target, [(sequence, right)], [window])


@needs_emulator
@pytest.mark.parametrize("kind", KINDS)
def test_windows_on_the_emulator(kind):
    target, right = spoiled(kind, "emulator"), plain("emulator")
    sequence = prefill(target, right, 2)
    for window in FEW:
        step(target, [(sequence, right)], [window])


@pytest.mark.parametrize("kind", KINDS)
def test_two_sequences_beside_each_other(kind):
    """Together they may have more rows than states are written of."""
    target = spoiled(kind)
    members = [(target.open_sequence(), plain("cpu", skipped)) for skipped in (0, 7)]
    for both in zip(shuffled(EVERY, 1), shuffled(EVERY, 2), strict=False):
        step(target, members, both)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_verified_last_can_be_verified_anew(kind):
    """A step that broke off behind its rollback left nothing that counts."""
    target, right = spoiled(kind), plain("cpu")
    sequence = prefill(target, right, 5)
    step(target, [(sequence, right)], [(3, 1)])
    before = sequence.cursor
    target.verify([Window(sequence, [9] * 5, before.cache_len)])
    target.rollback(sequence, 2)
    assert sequence.cursor == before
    for window in ((4, 2), (0, 0), (2, 0)):
        step(target, [(sequence, right)], [window])


def test_a_snapshot_leaves_nothing_pending():
    target, right = spoiled("snapshots"), plain("cpu")
    sequence = prefill(target, right, 5)
    for window, pending in (((3, 1), 0), ((3, 3), 0), ((0, 0), 1), ((MOST_ROWS, 2), 3)):
        step(target, [(sequence, right)], [window])
        assert sequence.cursor.pending == pending


def test_a_replay_forwards_the_kept_rows_alone(monkeypatch):
    target, right = spoiled("replay"), plain("cpu")
    sequence, fed = prefill(target, right, 5), []
    feed = target.feed
    monkeypatch.setattr(target, "feed", lambda windows: (fed.extend(windows), feed(windows)))
    for window in ((3, 1), (3, 3), (0, 0), (2, 0), (1, 0)):
        step(target, [(sequence, right)], [window])
    assert [(one.start_pos, len(one.tokens)) for one in fed] == [(5, 2), (12, 1), (13, 1)]


def test_a_replay_begins_with_the_copied_state(monkeypatch):
    """Nothing of the state that the verify began with is needed any more."""
    target, right = spoiled("replay"), plain("cpu")
    sequence, rollback = prefill(target, right, 5), target.rollback

    def behind_garbage(sequence, num_kept):
        for layer in (one for one in target.caches if isinstance(one, RecurrentLayer)):
            for array in (layer.states, layer.tails):
                array[sequence.slot, sequence.cursor.live] = np.nan
        return rollback(sequence, num_kept)

    monkeypatch.setattr(target, "rollback", behind_garbage)
    for window in ((3, 1), (1, 0), (7, 3), (2, 0)):
        step(target, [(sequence, right)], [window])


def test_a_fed_window_moves_nothing_and_gives_its_taps():
    """Those that prefill has, chunk by chunk."""
    target, ids = load_golden("qwen35").target, plain("cpu").ids[:5]
    chunks = target.prefill(target.open_sequence(), ids, (FINAL_HIDDEN,))
    expected = np.concatenate([kept.taps[FINAL_HIDDEN].copy() for kept in chunks])
    sequence = target.open_sequence()
    fed = target.feed([Window(sequence, ids, 0)], (FINAL_HIDDEN,))[FINAL_HIDDEN]
    assert sequence.cursor.cache_len == 0
    np.testing.assert_array_equal(fed, expected)


def test_what_programs_record_are_the_ops():
    assert sorted(OPS) == test_mirror.OPS


def test_plain_calls_run_when_the_program_does():
    ops = HostOps(1)
    plain_calls = PlainCalls(ops)
    x, out = (plain_calls.buffer((2, 8), np.float32) for _ in range(2))
    with plain_calls.record() as program:
        plain_calls.assign(x, np.full((2, 8), 3, np.float32))  # no op: at once
        plain_calls.copy(x, out=out)
        plain_calls.copy(out, out=x)
    assert (x == 3).all() and not out.any() and len(program.calls) == 2
    x[:] = 4
    program.run()
    assert (out == 4).all()
    plain_calls.copy(np.zeros((2, 8), np.float32), out=out)
    assert not out.any() and len(program.calls) == 2


def test_states_of_short_forwards_alone_are_written():
    ops = StatesOut(HostOps(1), 2, 4)
    assert [ops.writes(rows) for rows in (1, 2, 4, 5)] == [False, True, True, False]
    target = spoiled("snapshots")
    layers = [cache for cache in target.caches if isinstance(cache, RecurrentLayer)]
    assert list(target.ops.states) == layers
    shape = layers[0].states.shape[2:]
    assert {states.shape for states in target.ops.states.values()} == {(MOST_ROWS, *shape)}


def test_timed_programs_tell_what_each_op_takes():
    llm = load_golden("qwen35")
    timed = TimedOps(llm.target.ops)
    target = type(llm.target)(llm.target.trunk, timed, context=64, kv_type="f32", max_sequences=1)
    window = Window(target.open_sequence(), plain("cpu").ids[:3], 0)
    ids = target.verify([window]).ids.tolist()
    assert {"causal_conv", "gated_delta", "head"} <= set(timed.seconds)
    assert min(timed.seconds.values()) > 0
    assert llm.target.verify([Window(llm.target.open_sequence(), *window[1:])]).ids.tolist() == ids
