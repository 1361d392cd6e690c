"""The op sets as a whole: recorded or at once, and no NumPy arithmetic on the host's buffers."""

import numpy as np
import pytest
from kv_data import make_step
from levels import LEVELS
from quant_data import Tensor, TypeOf, random_tensor

from specrt.host import HostOps
from specrt.ops import Rope
from specrt.reference import ReferenceOps

WIDTH, VOCAB, DIMS = 96, 50, 32
NORM = np.linspace(0.5, 2, WIDTH, dtype=np.float32)


class Guarded(np.ndarray):
    """An array on which no NumPy function runs."""

    def __array_ufunc__(self, ufunc, *_, **__):
        raise AssertionError(f"NumPy's {ufunc.__name__} on an op buffer")

    def __array_function__(self, function, *_, **__):
        raise AssertionError(f"NumPy's {function.__name__} on an op buffer")


class GuardedOps(HostOps):
    def buffer(self, shape, dtype):
        return super().buffer(shape, dtype).view(Guarded)


class Layer:
    """One layer with every op of the table, over fixed buffers."""

    def __init__(self, ops, kv_type="f16", num_rows=5):
        self.ops, self.kv_type = ops, kv_type
        names = ("embd", "q", "k", "v", "gate", "up", "down", "head")
        sizes = dict(zip(names, (VOCAB, 96, 32, 32, 160, 160, WIDTH, VOCAB), strict=True))
        self.w = {
            name: ops.weight(random_tensor("Q8_0", rows, 160 if name == "down" else WIDTH, seed))
            for seed, (name, rows) in enumerate(sizes.items())
        }
        self.acts = ops.acts(num_rows, WIDTH, [self.w["q"]])
        self.wide_acts = ops.acts(num_rows, 160, [self.w["down"]])
        self.norm = ops.vector(Tensor("w", (WIDTH,), TypeOf("F32", 1, 4), NORM.view(np.uint8)))
        self.out = {n: ops.buffer((num_rows, s), np.float32) for n, s in sizes.items()}
        self.x, self.h, self.att, self.tap = (
            ops.buffer((num_rows, WIDTH), np.float32) for _ in range(4)
        )
        self.ids = ops.buffer((num_rows,), np.int32)
        self.step = make_step(ops, range(num_rows), [0] * num_rows, 2)
        self.step.row_offsets[:] = [0, num_rows]
        self.index, self.chosen = ops.buffer((2,), np.int32), ops.buffer((2, WIDTH), np.float32)
        self.index[:] = [num_rows - 1, -1]
        self.outcomes = ops.buffer((1, 3), np.int32)
        self.step.tokens[:] = [7, 3, 49, 0, 12][:num_rows]
        self.cache = ops.kv_layer(2, 1, DIMS, kv_type, 0)
        table = ops.buffer((100, 16, 2), np.float32)
        angle = np.arange(100)[:, None] * 0.5 ** np.arange(16)
        table[..., 0], table[..., 1] = np.cos(angle), np.sin(angle)
        self.rope = Rope(table, "neox")

    def forward(self):
        ops, w, out = self.ops, self.w, self.out
        ops.embed(w["embd"], self.step, scale=2.0, out=self.x)
        ops.rms_norm(self.x, self.norm, 1e-5, out=self.h)
        ops.quantize(self.h, out=self.acts)
        ops.linear([(w[n], out[n]) for n in "qkv"], self.acts)
        ops.rope_kv(out["q"], out["k"], out["v"], self.cache, self.step, rope=self.rope)
        ops.attention(out["q"], self.cache, self.step, scale=0.2, window=0, out=self.att)
        ops.rms_norm(self.att, self.norm, 1e-5, out=self.x, add=self.x)
        ops.quantize(self.x, out=self.acts)
        ops.linear([(w["gate"], out["gate"]), (w["up"], out["up"])], self.acts)
        ops.glu(out["gate"], out["up"], activation="silu", out=out["gate"])
        ops.quantize(out["gate"], out=self.wide_acts)
        ops.linear([(w["down"], self.x)], self.wide_acts, add=self.x)
        ops.copy(self.x, out=self.tap)
        ops.quantize(self.x, out=self.acts)
        ops.head(w["head"], self.acts, ids=self.ids, logits=out["head"], softcap=0.0)
        ops.accept(self.ids, self.step, out=self.outcomes)
        ops.select(self.tap, self.index, out=self.chosen)

    def results(self):
        integers = self.ids.tolist(), self.outcomes.tolist()
        floats = self.out["head"], self.tap, self.chosen
        return *(array.tobytes() for array in floats), *integers


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0"])
def test_recorded_equals_at_once_without_numpy(level, kv_type):
    at_once = Layer(HostOps(threads=1, level=level), kv_type)
    at_once.forward()
    guarded = Layer(GuardedOps(threads=2, level=level), kv_type)
    with guarded.ops.record() as program:
        guarded.forward()
    assert not any(guarded.ids.tolist())  # nothing ran yet
    program.run()
    assert guarded.results() == at_once.results()
    first = guarded.results()
    guarded.step.tokens[:] = [1, 2, 3, 4, 5]
    program.run()
    assert guarded.results() != first
    guarded.step.tokens[:] = at_once.step.tokens
    program.run()
    assert guarded.results() == first


def test_the_guard_raises():
    x = GuardedOps(threads=1).buffer((3,), np.float32)
    with pytest.raises(AssertionError, match="add"):
        x + x
    with pytest.raises(AssertionError, match="concatenate"):
        np.concatenate([x, x])


def test_reference_programs_equal_calls_and_the_host():
    reference, recorded, host = Layer(ReferenceOps()), Layer(ReferenceOps()), Layer(HostOps())
    reference.forward()
    host.forward()
    with recorded.ops.record() as program:
        recorded.forward()
    assert not recorded.ids.any()
    program.run()
    assert recorded.results() == reference.results()
    assert recorded.ids.tolist() == host.ids.tolist()


@pytest.mark.parametrize("ops", [ReferenceOps, HostOps])
def test_records_do_not_nest_and_end_with_their_block(ops):
    layer = Layer(ops())
    with pytest.raises(RuntimeError, match="already"), layer.ops.record(), layer.ops.record():
        pass
    layer.forward()  # at once again
    assert layer.ids.any()


def test_buffers_are_aligned_and_zero():
    for shape, dtype in (((3, 5), np.float32), ((7,), np.int8), ((1, 4), np.float16)):
        array = HostOps(threads=1).buffer(shape, dtype)
        assert array.ctypes.data % 64 == 0 and array.shape == shape and array.dtype == dtype
        assert not array.any() and array.flags.c_contiguous
