"""embed: host and kernel against the reference by equality."""

import numpy as np
import pytest
from emulated import Recorder, needs_emulator, placed
from levels import LEVELS
from quant_data import FLOAT_BYTES, random_tensor
from rows import assert_same_bits, both_weights, kernel_weight, nans

from specrt._ext.host_ops import Tape
from specrt.errors import MismatchError
from specrt.host.embed import embed as host_embed
from specrt.kernels.embed import embed as kernel_embed
from specrt.reference.embed import embed
from specrt.reference.quant_blocks import QUANT_TYPES, dequantize
from specrt.reference.weights import ReferenceWeight

TOKENS = np.array([3, 0, 12, 12, 1, 2, -1, 13, 5], np.int32)


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("type_name", [*QUANT_TYPES, *FLOAT_BYTES])
def test_host_equals_reference(level, type_name):
    width = 423 if type_name in FLOAT_BYTES else 768
    weight = both_weights(random_tensor(type_name, 13, width))
    for scale in (1.0, 25.298221):
        expected, got = nans(8, width), nans(8, width)
        embed(weight.reference, TOKENS, scale=scale, out=expected)
        tape = Tape(level)
        host_embed(tape, weight.host, TOKENS, scale=scale, out=got)
        tape.run()
        assert_same_bits(got, expected)
        assert np.isnan(got[6:]).all() and np.isfinite(got[:6]).all()
    row = dequantize(type_name, weight.host.raw)[12]
    assert_same_bits(got[2], row * np.float32(25.298221))


@needs_emulator
@pytest.mark.parametrize("type_name", [*QUANT_TYPES, *FLOAT_BYTES])
def test_the_kernel_equals_the_reference(type_name):
    tensor = random_tensor(type_name, 29, 424 if type_name == "F16" else 768)
    if type_name == "F32":
        tensor = random_tensor(type_name, 29, 423)
    tokens = placed(np.array([3, 0, 28, 17, 16, 15, -1, 29, 5], np.int32))
    weight, width = kernel_weight(tensor), tensor.shape[1]
    for scale, seed in ((1.0, 0), (25.298221, 1)):
        expected, got = nans(8, width), placed(nans(8, width))
        embed(ReferenceWeight(tensor), tokens, scale=scale, out=expected)
        device = Recorder(seed, flush=False)
        kernel_embed(device, weight, tokens, scale=scale, out=got)
        assert_same_bits(got, expected)
        assert device.entries == ["embed_x1" if width % 4 else "embed_x4"]
    assert np.isnan(got[6:]).all() and np.isfinite(got[:6]).all()


@needs_emulator
def test_the_kernel_takes_rows_of_any_place_and_none():
    tensor = random_tensor("Q4_K", 29, 768)
    expected, got = nans(2, 768), placed(nans(2, 768), offset=4)
    device, weight = Recorder(), kernel_weight(tensor)
    embed(ReferenceWeight(tensor), TOKENS, scale=2.0, out=expected)
    kernel_embed(device, weight, TOKENS, scale=2.0, out=got)
    kernel_embed(device, weight, TOKENS, scale=2.0, out=got[:0])
    assert_same_bits(got, expected)
    assert device.entries == ["embed_x1"]


def test_wrong_arguments_are_refused():
    weight = both_weights(random_tensor("Q8_0", 13, 64)).host
    with pytest.raises(MismatchError, match="tokens"):
        host_embed(Tape(0), weight, TOKENS[:3], scale=1.0, out=nans(4, 64))
    with pytest.raises(MismatchError, match="out"):
        host_embed(Tape(0), weight, TOKENS, scale=1.0, out=nans(4, 65))
