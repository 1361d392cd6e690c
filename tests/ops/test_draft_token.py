"""draft_token: ids, positions and places by equality, shares against float64."""

from functools import partial

import numpy as np
import pytest
from emulated import SEEDS, Recorder, needs_emulator, placed
from levels import LEVELS

from specrt._ext.host_ops import Tape
from specrt.errors import MismatchError
from specrt.host.draft_token import draft_token as host_draft_token
from specrt.kernels.draft_token import draft_token as kernel_draft_token
from specrt.ops import PAGE
from specrt.reference.draft_token import draft_token
from specrt.state.step import StepInputs

SEQS, RING, PAGES = 4, 8, 2
LAST = PAGES * PAGE - 1
POSITIONS = [0, 7, 30, LAST]


def on_host(level):
    def run(*args, **keywords):
        tape = Tape(level)
        host_draft_token(tape, *args, **keywords)
        tape.run()

    return run


ALL = {"reference": draft_token}
ALL |= {name: on_host(level) for name, level in LEVELS.items()}


def ranked(k, seed=0):
    """The best k of each sequence, best first."""
    rng = np.random.default_rng([seed, k])
    logits = -np.sort(-rng.standard_normal((SEQS, k), dtype=np.float32) * 3, axis=1)
    ids = rng.integers(0, 90, (SEQS, k)).astype(np.int32)
    return ids, logits


def arguments(k, names=None, buffer=np.zeros, placed=lambda x: x):
    """Arguments whose outputs are garbage."""
    ids, logits = ranked(k)
    step = StepInputs(SEQS + 1, SEQS, PAGES, 0, buffer)
    step.positions[:SEQS], step.tokens[:] = POSITIONS, -5
    return (placed(ids), placed(logits), step), {
        "names": names,
        "gates": placed(np.zeros(SEQS, np.float32)),
        "tokens": placed(np.full((SEQS + 1, RING), -9, np.int32)),
        "shares": placed(np.full((SEQS + 1, RING), np.nan, np.float32)),
        "stop": placed(np.full(1, 7, np.int32)),
    }


def check(run, k, names=None, **where):
    (ids, logits, step), outs = arguments(k, names, **where)
    run(ids, logits, step, **outs)
    found = ids[:, 0] if names is None else names[ids[:, 0]]
    exact = np.exp(logits.astype(np.float64) - logits[:, :1]).sum(axis=1)
    for b, position in enumerate(POSITIONS):
        place = (position + 1) % RING
        assert outs["tokens"][b, place] == step.tokens[b] == found[b]
        assert outs["shares"][b, place] == pytest.approx(1 / exact[b], rel=1e-6)
        assert step.positions[b] == min(position + 1, LAST)
        outs["tokens"][b, place], outs["shares"][b, place] = -9, np.nan
    assert (outs["tokens"] == -9).all() and np.isnan(outs["shares"]).all()
    assert step.tokens[SEQS] == -5 and step.positions[SEQS] == 0
    assert outs["stop"][0] == 0


def check_gates(run, **where):
    """It stops where no share reaches its gate, NaN being none that does."""
    for logits, gates, stop in (
        ([0, 0], [0.5, 1, 1, 1], 0),
        ([0, 0], [0.75, 0.75, 0.75, 0.75], 1),
        ([0, 0], [1, 1, 1, 0.25], 0),
        ([np.nan, 0], [0, 0, 0, 0], 1),
        ([-np.inf, -np.inf], [0, 0, 0, 0], 1),
    ):
        (ids, values, step), outs = arguments(2, **where)
        values[:], outs["gates"][:] = logits, gates
        run(ids, values, step, **outs)
        assert outs["stop"][0] == stop, (logits, gates)


@pytest.mark.parametrize("run", ALL.values(), ids=ALL)
@pytest.mark.parametrize("k", [1, 5, 10, 16, 23])
def test_the_likeliest_is_noted_and_fed(run, k):
    check(run, k)
    check(run, k, np.arange(100, 200, dtype=np.int32))


@pytest.mark.parametrize("run", ALL.values(), ids=ALL)
def test_it_stops_where_no_share_reaches_its_gate(run):
    check_gates(run)


def test_all_instruction_sets_give_the_same_bits():
    results = []
    for level in LEVELS.values():
        (ids, logits, step), outs = arguments(19)
        on_host(level)(ids, logits, step, **outs)
        results.append(outs["shares"].tobytes())
    assert len(set(results)) == 1


def on_device(shape, dtype):
    return placed(np.zeros(shape, dtype))


@needs_emulator
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("k", [1, 5, 10, 31, 32, 33, 64, 70])
def test_the_kernel_notes_the_likeliest_and_feeds_it(k, seed):
    device, where = Recorder(seed), {"buffer": on_device, "placed": placed}
    check(partial(kernel_draft_token, device), k, **where)
    check(partial(kernel_draft_token, device), k, placed(np.arange(100, 200, dtype="i")), **where)
    assert device.entries == ["draft_token"] * 2


@needs_emulator
@pytest.mark.parametrize("seed", SEEDS)
def test_the_kernel_stops_where_no_share_reaches_its_gate(seed):
    check_gates(partial(kernel_draft_token, Recorder(seed)), buffer=on_device, placed=placed)


def drafted(run, num_seqs, reaching):
    """Of sequences of which one reaches its gate, or none."""
    logits = -np.sort(np.random.default_rng(3).standard_normal((num_seqs, 6), dtype=np.float32))
    ids = np.arange(6 * num_seqs, dtype=np.int32).reshape(-1, 6)
    step = StepInputs(num_seqs, num_seqs, PAGES, 0, on_device)
    step.positions[:] = 6 * np.arange(num_seqs)
    gates = np.array([0 if b == reaching else 1 for b in range(num_seqs)], np.float32)
    outs = {"tokens": placed(np.full((num_seqs, RING), -9, np.int32))}
    outs |= {"shares": placed(np.full((num_seqs, RING), -9, np.float32))}
    outs |= {"stop": placed(np.full(1, 7, np.int32))}
    run(placed(ids), placed(logits), step, names=None, gates=placed(gates), **outs)
    return outs.pop("shares"), [*outs.values(), step.tokens, step.positions]


@needs_emulator
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("reaching", [None, 0, 7, 8, 18])
def test_more_sequences_than_the_kernel_has_warps(reaching, seed):
    shares, others = drafted(partial(kernel_draft_token, Recorder(seed)), 19, reaching)
    near, expected = drafted(draft_token, 19, reaching)
    np.testing.assert_allclose(shares, near, rtol=1e-6)
    for got, right in zip(others, expected, strict=True):
        assert (got == right).all()
    assert others[1][0] == (reaching is None)


@needs_emulator
def test_a_sequence_of_the_kernel_does_not_know_of_the_others():
    run = partial(kernel_draft_token, Recorder())
    whole = drafted(run, 19, None)[0]
    for num_seqs in (1, 4, 9):
        assert drafted(run, num_seqs, None)[0][0].tobytes() == whole[0].tobytes()


@pytest.mark.parametrize("launch", [host_draft_token, kernel_draft_token])
def test_wrong_arguments_are_refused(launch):
    target = Tape(0) if launch is host_draft_token else Recorder()
    (ids, logits, step), outs = arguments(3)
    for name, wrong in (
        ("ids", ids.astype(np.int64)),
        ("ids", ids[:, :0].copy()),
        ("logits", logits[:, :2].copy()),
        ("gates", np.zeros(SEQS - 1, np.float32)),
        ("tokens", np.zeros((SEQS - 1, RING), np.int32)),
        ("shares", np.zeros((SEQS + 1, RING - 1), np.float32)),
        ("stop", np.zeros(2, np.int32)),
        ("names", np.zeros(4)),
    ):
        arrays = {"ids": ids, "logits": logits, **outs, name: wrong}
        with pytest.raises(MismatchError, match="draft_token"):
            launch(target, arrays.pop("ids"), arrays.pop("logits"), step, **arrays)
    with pytest.raises(MismatchError, match="hold 2"):
        launch(target, ids, logits, StepInputs(2, 2, 1, 0), **outs)
