"""The parts of the CUDA op set that hold keys and values, over an emulator."""

from __future__ import annotations

import numpy as np
import pytest
from emulated import Recorder, needs_emulator, placed

from specrt.host import HostOps
from specrt.kernels.attention import attention, scratch_floats
from specrt.kernels.kv import KernelKVLayer, kv_read, kv_write
from specrt.kernels.rope_kv import rope_kv
from specrt.state.step import StepInputs


def zeros(shape, dtype):
    return placed(np.zeros(shape, dtype))


class KernelKVOps:
    """Pages, ``rope_kv`` and ``attention`` as ``specrt.ops.Ops`` has them.

    Args:
        split: give attention its scratch, so that few rows are cut along the keys.
    """

    def __init__(self, seed=0, device=None, split=True):
        self.device = device or Recorder(seed)
        self.split = split

    def step_inputs(self, *sizes):
        return StepInputs(*sizes, zeros)

    def kv_layer(self, *sizes):
        return KernelKVLayer(*sizes, zeros)

    def kv_read(self, cache, pages, positions):
        return kv_read(cache, pages, positions, to_host=np.asarray, to_device=np.asarray)

    def kv_write(self, cache, pages, positions, k, v):
        kv_write(cache, pages, positions, k, v, to_device=np.asarray)

    def rope_kv(self, q, k, v, cache, step, **options):
        rope_kv(self.device, q, k, v, cache, step, **options)

    def attention(self, q, cache, step, **options):
        scratch = None
        if self.split:
            size = scratch_floats(len(q), q.shape[1], cache, step)
            scratch = placed(np.full(size, np.nan, np.float32))
        attention(self.device, q, cache, step, scratch=scratch, **options)


OP_SETS = [
    pytest.param(lambda: HostOps(threads=1), id="host"),
    pytest.param(KernelKVOps, id="emulator", marks=needs_emulator),
]
