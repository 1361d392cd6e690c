"""embed: host against the reference by equality."""

import numpy as np
import pytest
from levels import LEVELS
from quant_data import FLOAT_BYTES, random_tensor
from rows import assert_same_bits, both_weights, nans

from specrt._ext.host_ops import Tape
from specrt.errors import MismatchError
from specrt.host.embed import embed as host_embed
from specrt.reference.embed import embed
from specrt.reference.quant_blocks import QUANT_TYPES, dequantize

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


def test_wrong_arguments_are_refused():
    weight = both_weights(random_tensor("Q8_0", 13, 64)).host
    with pytest.raises(MismatchError, match="tokens"):
        host_embed(Tape(0), weight, TOKENS[:3], scale=1.0, out=nans(4, 64))
    with pytest.raises(MismatchError, match="out"):
        host_embed(Tape(0), weight, TOKENS, scale=1.0, out=nans(4, 65))
