"""Programs as graphs: captured, replayed with other values, dropped under a budget."""

import gc
import logging
import sys
from contextlib import nullcontext

import numpy as np
import pytest
from fake_cupy import NODE_BYTES, CUDADriverError, CUDARuntimeError, FakeCupy, FakeStream

from specrt.kernels import KernelOps
from specrt.kernels.cuda import CudaDevice
from specrt.kernels.emulator import Emulator


@pytest.fixture
def cupy(monkeypatch):
    fake = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


def recorded(ops, width=64):
    """A program of two kernels over its input, and both ends."""
    x, h, out = (ops.buffer((3, width), np.float32) for _ in range(3))
    with ops.record() as program:
        ops.rms_norm(x, None, 1e-6, out=h)
        ops.glu(h, h, activation="silu", out=out)
    return program, x, out


def expected(values):
    ops = KernelOps(Emulator())
    program, x, out = recorded(ops, values.shape[1])
    ops.assign(x, values)
    program.run()
    return ops.to_host(out)


def values(seed, width=64):
    return np.random.default_rng(seed).standard_normal((3, width)).astype(np.float32)


def test_a_program_becomes_a_graph_once_its_kernels_have_run(cupy, caplog):
    caplog.set_level(logging.DEBUG)
    ops = KernelOps(CudaDevice())
    program, x, out = recorded(ops)
    for step in range(4):
        program.prepare()
        ops.assign(x, values(step))
        program.run()
        assert (ops.to_host(out) == expected(values(step))).all(), step
        assert cupy.num_graph_launches == step
    assert [record.message for record in caplog.records] == [
        f"captured a graph of 2 kernels: {2 * NODE_BYTES} bytes"
    ]


def test_a_second_program_of_warm_kernels_is_a_graph_from_its_first_run(cupy):
    ops = KernelOps(CudaDevice())
    for number in range(2):
        program, x, out = recorded(ops)
        program.prepare()
        ops.assign(x, values(number))
        program.run()
        assert (ops.to_host(out) == expected(values(number))).all()
    assert cupy.num_graph_launches == 1


def test_past_the_budget_the_graph_that_ran_longest_ago_goes(cupy, caplog):
    caplog.set_level(logging.DEBUG)
    ops = KernelOps(CudaDevice(graph_bytes=5 * NODE_BYTES))
    programs = [recorded(ops, width) for width in (32, 64, 96)]
    programs[0][0].run()  # all kernels are warm

    def run(number):
        program, x, out = programs[number]
        width, before = x.shape[1], cupy.num_graph_launches
        program.prepare()
        ops.assign(x, values(number, width))
        program.run()
        assert (ops.to_host(out) == expected(values(number, width))).all()
        assert cupy.num_graph_launches == before + 1

    for number in (0, 1, 0, 2, 0, 1):
        run(number)
    told = [record.message.split(" graph")[0] for record in caplog.records]
    assert told == [*["captured a"] * 3, "reset a", "captured a", "reset a"]
    gc.collect()
    assert cupy.free == cupy.cuda.runtime.memGetInfo()[1] - 4 * NODE_BYTES


def test_a_graph_that_seems_to_be_over_the_budget_leaves_the_others(cupy, monkeypatch):
    """Memory that another process takes during a capture counts as the graph's."""
    device = CudaDevice(graph_bytes=8 * NODE_BYTES)
    ops = KernelOps(device)
    (first, *_), (second, x, out) = recorded(ops), recorded(ops)
    first.run()
    first.prepare()
    end = FakeStream.end_capture

    def end_capture(stream):
        cupy.free -= 20 * NODE_BYTES
        return end(stream)

    monkeypatch.setattr(FakeStream, "end_capture", end_capture)
    second.prepare()
    ops.assign(x, values(1))
    second.run()
    assert (ops.to_host(out) == expected(values(1))).all()
    assert cupy.num_graph_launches == 0
    first.run()
    assert cupy.num_graph_launches == 1


def test_a_program_that_nobody_holds_takes_its_graph_along(cupy):
    ops = KernelOps(CudaDevice())
    program, _, _ = recorded(ops)
    program.run()
    program.prepare()
    taken = cupy.cuda.runtime.memGetInfo()[1] - cupy.free
    assert taken == 2 * NODE_BYTES
    del program
    gc.collect()
    assert cupy.free == cupy.cuda.runtime.memGetInfo()[1]


def test_a_program_is_timed_behind_a_run_and_a_graph_is_one_launch(cupy):
    device = CudaDevice()
    ops = KernelOps(device)
    program, x, out = recorded(ops)
    ops.assign(x, values(1))
    assert device.timed(program) == pytest.approx(2.0)  # a microsecond for a kernel
    assert ops.num_launches == 4
    program.prepare()
    assert device.timed(program) == pytest.approx(2.0)
    assert ops.num_launches == 4 + 2 and cupy.num_graph_launches == 2
    assert (ops.to_host(out) == expected(values(1))).all()


def advancing(ops):
    """A program that goes on by a position and raises its flag, the flag, and the positions."""
    step = ops.step_inputs(1, 1, 2, 0)
    step.positions[0] = 3
    step.publish()
    ids, tokens = (ops.buffer((1, 1), np.int32) for _ in range(2))
    logits, shares = (ops.buffer((1, 1), np.float32) for _ in range(2))
    gates, stop = ops.buffer((1,), np.float32), ops.buffer((1,), np.int32)
    ops.assign(gates, np.full(1, 2, np.float32))
    with ops.record() as program:
        ops.draft_token(
            ids, logits, step, names=None, gates=gates, tokens=tokens, shares=shares, stop=stop
        )
    return program, stop, step.on_device.positions


def test_programs_repeat_and_do_not_look_at_the_flag(cupy):
    for ops in (KernelOps(Emulator()), KernelOps(CudaDevice())):
        program, stop, positions = advancing(ops)
        assert program.repeat(4, stop) == 4
        assert ops.to_host(stop)[0] == 1 and ops.to_host(positions)[0] == 3 + 4
    assert cupy.num_graph_launches == 0
    program.prepare()
    assert program.repeat(3, stop) == 3 and program.repeat(0, stop) == 0
    assert ops.to_host(positions)[0] == 3 + 7 and cupy.num_graph_launches == 3


@pytest.mark.parametrize("budget", [0, NODE_BYTES // 16])
def test_without_a_budget_kernels_are_launched_singly(cupy, budget):
    ops = KernelOps(CudaDevice(graph_bytes=budget))
    program, x, out = recorded(ops)
    for step in range(3):
        program.prepare()
        ops.assign(x, values(step))
        program.run()
        assert (ops.to_host(out) == expected(values(step))).all()
    assert cupy.num_graph_launches == 0


@pytest.mark.parametrize(
    "error",
    [
        CUDARuntimeError("cudaErrorStreamCaptureInvalidated"),
        CUDADriverError("CUDA_ERROR_INVALID_VALUE"),
        None,
    ],
)
def test_what_cannot_be_captured_is_launched_singly(cupy, caplog, monkeypatch, error):
    """A failing capture, and a kernel that allocates."""
    device = CudaDevice()
    ops = KernelOps(device)
    program, x, out = recorded(ops)
    program.run()
    launch = CudaDevice.launch

    def failing(self, *args):
        if cupy.current._captured is not None:
            if error:
                raise error
            self.zeros((1,), np.float32)
        launch(self, *args)

    monkeypatch.setattr(CudaDevice, "launch", failing)
    for step in range(2):
        program.prepare()
        ops.assign(x, values(step))
        program.run()
        assert (ops.to_host(out) == expected(values(step))).all()
    assert cupy.num_graph_launches == 0
    assert len(caplog.records) == 1 and "launched singly" in caplog.text
    assert gc.isenabled()


def test_all_happens_on_the_device_though_the_thread_is_on_another(cupy):
    cupy.device = 1
    ops = KernelOps(CudaDevice())
    cupy.device = 0
    program, x, out = recorded(ops)
    ops.step_inputs(4, 1, 2, 0).publish()
    for step in range(2):
        program.prepare()
        ops.assign(x, values(step))
        program.run()
        assert (ops.to_host(out) == expected(values(step))).all()
    assert cupy.num_graph_launches == 1 and cupy.device == 0
    names = ("begin_capture", "end_capture", "event", "kernel", "memory")
    assert cupy.asked_on == {name: {1} for name in names}


@pytest.mark.parametrize("first", [KeyboardInterrupt(), None])
def test_what_goes_wrong_first_in_a_capture_comes_out(cupy, monkeypatch, first):
    """And nothing was launched, whether the capture ends or not."""
    device = CudaDevice()
    program, _, _ = recorded(KernelOps(device))
    program.run()
    launch, end = CudaDevice.launch, FakeStream.end_capture

    def failing(self, *args):
        launch(self, *args)
        if first:
            raise first

    def end_capture(stream):
        end(stream)
        raise CUDARuntimeError("cudaErrorStreamCaptureInvalidated")

    monkeypatch.setattr(CudaDevice, "launch", failing)
    monkeypatch.setattr(FakeStream, "end_capture", end_capture)
    with pytest.raises(KeyboardInterrupt) if first else nullcontext():
        program.prepare()
    assert device.num_launches == 2 and gc.isenabled()


def test_step_values_may_change_as_soon_as_they_are_published(cupy):
    """The device reads late: each run must see the values of its own publish."""
    ops = KernelOps(CudaDevice())
    step = ops.step_inputs(4, 1, 2, 0)
    outs = [ops.buffer((1, 4), np.int32) for _ in range(3)]
    for number, out in enumerate(outs):
        step.tokens[:] = [number, 1, 2, 3]
        step.publish()
        ops.copy(step.on_device.tokens.reshape(1, 4), out=out)
        step.tokens[:] = -1
    got = [ops.to_host(out)[0, 0] for out in outs]
    assert got == [0, 1, 2]


def test_recordings_do_not_nest_and_end_when_they_fail(cupy):
    ops = KernelOps(Emulator())
    with pytest.raises(RuntimeError, match="recorded already"), ops.record(), ops.record():
        pass
    program, _, _ = recorded(ops)
    program.run()
