"""gated_delta: a float64 oracle, every form the same bits, and windows that are taken back."""

from functools import partial

import numpy as np
import pytest
from accuracy import assert_accurate
from emulated import SEEDS, needs_emulator
from levels import LEVELS
from recurrent_data import SHAPES, garbage, random_rows, random_windows, step_of
from rows import assert_same_bits, nans

from specrt._ext.host_ops import Tape
from specrt.errors import MismatchError, UnsupportedError
from specrt.host.gated_delta import gated_delta as host_gated_delta
from specrt.kernels.emulator import Emulator
from specrt.kernels.gated_delta import gated_delta as kernel_gated_delta
from specrt.reference.gated_delta import gated_delta
from specrt.state.recurrent import MOST_KEPT, RecurrentShape
from specrt.state.sequence import Cursor

EPS = 1e-6


def on_host(level):
    def run(*args, **keywords):
        tape = Tape(level)
        host_gated_delta(tape, *args, **keywords)
        tape.run()

    return run


FORMS = {"reference": gated_delta} | {name: on_host(level) for name, level in LEVELS.items()}


def run(form, rows, layer, step, states=False):
    """out, and the states behind the rows."""
    shape, num_rows = layer.shape, len(rows.qkv)
    out = nans(num_rows, shape.value_heads * shape.value_dim)
    after = nans(num_rows, shape.value_heads, shape.key_dim, shape.value_dim) if states else None
    form(
        rows.qkv, rows.alpha, rows.beta, layer, step,
        a=rows.a, dt_bias=rows.dt_bias, eps=EPS, out=out, states_out=after,
    )  # fmt: skip
    return out, after


def oracle(rows, shape):
    """Row by row in float64."""
    x, size = rows.qkv.astype(np.float64), shape.key_heads * shape.key_dim
    q, k = (
        part.reshape(len(x), shape.key_heads, -1) for part in (x[:, :size], x[:, size : 2 * size])
    )
    q, k = (part / np.sqrt((part * part).sum(-1, keepdims=True) + EPS) for part in (q, k))
    v = x[:, 2 * size :].reshape(len(x), shape.value_heads, -1)
    decay = np.exp(rows.a * np.logaddexp(0, rows.alpha.astype(np.float64) + rows.dt_bias))
    rate = 1 / (1 + np.exp(-rows.beta.astype(np.float64)))
    out, states = [], []
    for head in range(shape.value_heads):
        m, group = np.zeros((shape.key_dim, shape.value_dim)), head % shape.key_heads
        for row in range(len(x)):
            m = m * decay[row, head]
            delta = rate[row, head] * (v[row, head] - k[row, group] @ m)
            m = m + np.outer(k[row, group], delta)
            out.append(q[row, group] @ m / np.sqrt(shape.key_dim))
            states.append(m)
    heads_first = np.array(out).reshape(shape.value_heads, len(x), -1)
    states = np.array(states).reshape(shape.value_heads, len(x), shape.key_dim, -1)
    return heads_first.swapaxes(0, 1).reshape(len(x), -1), states.swapaxes(0, 1)


@pytest.mark.parametrize("num_rows", [1, 7, 70])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_against_the_oracle(shape, num_rows):
    rows = random_rows(shape, num_rows)
    step = step_of([(0, Cursor(), num_rows)])
    exact_out, exact_states = oracle(rows, shape)
    results = {
        name: run(form, rows, garbage(shape, 1), step, states=True) for name, form in FORMS.items()
    }
    out, states = results.pop("reference")
    first = next(iter(results.values()))
    for got_out, got_states in results.values():
        assert_accurate(got_out, out, exact_out)
        assert_accurate(got_states, states, exact_states)
        assert_same_bits(got_out, first[0])
        assert_same_bits(got_states, first[1])


@needs_emulator
@pytest.mark.parametrize("num_rows", [1, 7])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_kernel_against_the_oracle_in_any_order_of_threads(shape, num_rows):
    rows, step = random_rows(shape, num_rows), step_of([(0, Cursor(), num_rows)])
    baseline = run(gated_delta, rows, garbage(shape, 1), step, states=True)
    first, exact = None, oracle(rows, shape)
    for seed in SEEDS:
        layer = garbage(shape, 1)
        results = run(partial(kernel_gated_delta, Emulator(seed)), rows, layer, step, states=True)
        for got, plain, right in zip(results, baseline, exact, strict=True):
            assert_accurate(got, plain, right)
        kept = *results, layer.states, layer.log_k, layer.log_delta, layer.log_decay
        for got, expected in zip(kept, first or kept, strict=True):
            assert_same_bits(got, expected)
        first = first or kept


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_what_is_taken_back_leaves_nothing(form, shape, seed):
    check_windows(form, shape, seed, 300)


@needs_emulator
@pytest.mark.parametrize(("shape", "total"), [(SHAPES[1], 200), (SHAPES[2], 40)], ids=str)
def test_what_is_taken_back_from_the_kernel_leaves_nothing(shape, total):
    check_windows(partial(kernel_gated_delta, Emulator(1)), shape, 0, total)


def check_windows(form, shape, seed, total):
    """Two sequences, windows of which parts are kept: the bits of one row at a time."""
    rng = np.random.default_rng(seed)
    texts = [random_rows(shape, total + 2 * MOST_KEPT, 10 * seed + i) for i in range(2)]
    texts[1].a, texts[1].dt_bias = texts[0].a, texts[0].dt_bias  # of one layer
    plain = []
    for text in texts:
        layer, cursor, outs = garbage(shape, 1), Cursor(), []
        for row in range(total):
            step = step_of([(0, cursor, 1)])
            outs.append(run(form, text.part(row, row + 1), layer, step, states=True))
            cursor = cursor.fed(1)
        plain.append([np.concatenate(part) for part in zip(*outs, strict=True)])
    layer, cursors = garbage(shape, 3), [Cursor(), Cursor()]
    plans = [random_windows(rng, total) for _ in texts]
    while any(plans):
        turn = [i for i in range(2) if plans[i]]
        taken = [plans[i].pop(0) for i in turn]
        starts = [cursors[i].cache_len for i in turn]
        windows = [(2 - i, cursors[i], n) for i, (n, _) in zip(turn, taken, strict=True)]
        parts = [texts[i].part(s, s + n) for i, s, (n, _) in zip(turn, starts, taken, strict=True)]
        wrong = [replaced(part, kept, rng) for part, (_, kept) in zip(parts, taken, strict=True)]
        out, states = run(form, joined(wrong), layer, step_of(windows, 3), states=True)
        begin = 0
        for i, start, (rows, kept) in zip(turn, starts, taken, strict=True):
            if kept:
                for got, right in zip((out, states), plain[i], strict=True):
                    assert_same_bits(got[begin : begin + kept], right[start : start + kept])
                cursors[i] = cursors[i].fed(kept)
            begin += rows


def replaced(part, kept, rng):
    """Other rows behind those that are kept."""
    for x in (part.qkv, part.alpha, part.beta):
        x[kept:] = rng.standard_normal(x[kept:].shape)
    return part


def joined(parts):
    first = parts[0]
    for name in ("qkv", "alpha", "beta"):
        setattr(first, name, np.concatenate([getattr(part, name) for part in parts]))
    return first


def test_wrong_arguments_are_refused():
    shape = SHAPES[0]
    rows, step = random_rows(shape, 3), step_of([(0, Cursor(), 3)])
    layer = garbage(shape, 1)
    for wrong in (
        {"alpha": rows.alpha[:2]},
        {"a": rows.a[:1]},
        {"qkv": rows.qkv[:, :-1]},
        {"beta": rows.beta.astype(np.float64)},
    ):
        changed = random_rows(shape, 3)
        for name, value in wrong.items():
            setattr(changed, name, value)
        for form in (on_host(0), partial(kernel_gated_delta, Emulator())):
            with pytest.raises(MismatchError, match="gated_delta"):
                run(form, changed, layer, step)
    with pytest.raises(MismatchError, match="slots"):
        run(on_host(0), rows, layer, step_of([(0, Cursor(), 3)], num_seqs=2))


def test_keys_that_do_not_fit_into_a_block_are_refused():
    shape = RecurrentShape(1, 1, 400, 16, 2)
    with pytest.raises(UnsupportedError, match="400 dims"):
        run(
            partial(kernel_gated_delta, Emulator()),
            random_rows(shape, 1),
            garbage(shape, 1),
            step_of([(0, Cursor(), 1)]),
        )
