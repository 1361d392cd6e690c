"""Unpacking against the gguf package, by equality."""

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from quant_data import FLOAT_BYTES, random_tensor

from specrt.reference.quant_blocks import QUANT_TYPES, dequantize, unpack


@pytest.mark.parametrize("name", [*QUANT_TYPES, *FLOAT_BYTES])
def test_dequantize_equals_gguf(name):
    raw = random_tensor(name, 7, 5 * 256).raw
    expected = quants.dequantize(raw, GGMLQuantizationType[name])
    assert dequantize(name, raw).view(np.int32).tolist() == expected.view(np.int32).tolist()


@pytest.mark.parametrize("name", QUANT_TYPES)
def test_sizes_are_those_of_gguf(name):
    quant = QUANT_TYPES[name]
    assert (quant.block, quant.num_bytes) == GGML_QUANT_SIZES[GGMLQuantizationType[name]]


@pytest.mark.parametrize("name", QUANT_TYPES)
def test_unpacked_parts_have_their_shapes_and_give_the_weights(name):
    quant = QUANT_TYPES[name]
    raw = random_tensor(name, 7, 3 * 256).raw
    codes, scale, minimum = unpack(name, raw)
    assert codes.shape == (7, 768) and codes.dtype == np.int8
    assert scale.shape == (7, 768 // quant.sub) and scale.dtype == np.float32
    assert minimum is None or (minimum.shape == scale.shape and minimum.dtype == np.float32)
    exact = codes.astype(np.float64) * np.repeat(scale, quant.sub, 1)
    if minimum is not None:
        exact = exact + np.repeat(minimum, quant.sub, 1)
    assert np.allclose(exact, dequantize(name, raw), rtol=1e-6, atol=1e-7)
