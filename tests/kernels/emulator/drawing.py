"""Draws that every part of ``sample.cu`` has a share in."""

import numpy as np

from specrt._ext.sampler import Sampler
from specrt.kernels.sample import packed, sample
from specrt.options import SamplingParams
from specrt.state.draw import Draw
from specrt.state.step import StepInputs
from tests.emulated import placed


def run_sample(device, width, num_rows=9):
    """Drawn from what top-k and top-p keep of equal rows, where the history counts; and greedily.

    The likeliest ids are the history and the draft, one more of them in each row.
    """
    rng = np.random.default_rng(width)
    logits = np.tile(rng.standard_normal(width, dtype=np.float32), (num_rows, 1))
    ids = np.argsort(-logits[0])[:num_rows].astype(np.int32)
    step = StepInputs(num_rows, 1, 1, 0, lambda shape, dtype: placed(np.zeros(shape, dtype)))
    step.tokens[:], step.positions[:] = ids, np.arange(num_rows)
    step.row_offsets[:] = [0, num_rows]
    drawn = []
    for temperature in (2.0, 0.0):
        params = SamplingParams(temperature, top_k=9, top_p=0.9, presence_penalty=9.0)
        edits = Sampler(params, 1, width).edits(ids[:1], 0, ids[1:].tolist(), False)
        block = placed(packed([Draw(params, 1, 0, edits)], 1))
        inputs = block[:16].reshape(1, 16), block[16:].reshape(-1, 4)
        drawn.append(placed(np.full(num_rows, -1, np.int32)))
        sample(device, placed(logits), step, *inputs, ids=drawn[-1])
    return np.concatenate(drawn)
