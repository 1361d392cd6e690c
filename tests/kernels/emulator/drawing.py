"""Draws that every part of ``sample.cu`` has a share in."""

import numpy as np

from specrt.kernels.sample import FIELDS, draw_of, edits_of, sample
from specrt.options import SamplingParams
from specrt.state.step import StepInputs
from tests.emulated import placed


def run_sample(device, width, num_rows=9):
    """Drawn from what top-k and top-p keep of equal rows, where the history counts; and greedily.

    The likeliest ids are the history and the draft, one more of them in each row.
    """
    rng = np.random.default_rng(width)
    logits = placed(np.tile(rng.standard_normal(width, dtype=np.float32), (num_rows, 1)))
    ids = np.argsort(-logits[0])[:num_rows].astype(np.int32)
    step = StepInputs(num_rows, 1, 1, 0, lambda shape, dtype: placed(np.zeros(shape, dtype)))
    step.tokens[:], step.positions[:] = ids, np.arange(num_rows)
    step.row_offsets[:] = [0, num_rows]
    drawn = []
    for temperature in (2.0, 0.0):
        params = SamplingParams(
            temperature, top_k=9, top_p=0.9, presence_penalty=9.0, seed=1, logprobs=0
        )
        edits = edits_of(params, width, ids[:1], 0, ids[1:].tolist())
        draw = draw_of(params, 1, 0, 0, len(edits)).reshape(1).view(np.int32)
        saved = placed(np.full((num_rows, len(edits)), np.nan, np.float32))
        out = placed(np.full((num_rows, FIELDS), -1, np.int32))
        edits = placed(edits.view(np.int32).reshape(-1, 4))
        sample(device, logits, saved, step, placed(draw.reshape(1, -1)), edits, out=out)
        drawn.append(out)
    return np.concatenate(drawn)
