"""Random valid blocks of every GGUF type, as tests feed them to readers, reference and kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specrt.reference.quant_blocks import QUANT_TYPES

# Where a block's float16 fields stand.
F16_FIELDS = {
    **dict.fromkeys(("Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "IQ4_XS"), (0,)),
    **dict.fromkeys(("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"), (0,)),
    **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q6_K": (208,),
    "MXFP4": (),
}
FLOAT_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class TypeOf:
    name: str
    block_size: int
    block_bytes: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """What ops.weight takes: the fields of a tensor that the GGUF reader gives."""

    name: str
    shape: tuple[int, int]
    type: TypeOf
    raw: np.ndarray


def random_tensor(type_name: str, num_rows: int, num_cols: int, seed: int = 0) -> Tensor:
    """Random bytes with finite float16 scales of either sign; row 1 is zero, row 2 subnormal."""
    rng = np.random.default_rng([seed, num_rows, num_cols])
    shape = (num_rows, num_cols)
    if type_name in FLOAT_BYTES:
        values = rng.standard_normal(shape, dtype=np.float32)
        values[1 % num_rows] = 0
        return Tensor(
            "w", shape, TypeOf(type_name, 1, FLOAT_BYTES[type_name]), raw_of(type_name, values)
        )
    quant = QUANT_TYPES[type_name]
    blocks = rng.integers(
        0, 256, (num_rows, num_cols // quant.block, quant.num_bytes), dtype=np.uint8
    )
    for at in F16_FIELDS[type_name]:
        scale = rng.uniform(-0.02, 0.02, blocks.shape[:2]).astype(np.float16)
        scale[1 % num_rows] = 0
        scale[2 % num_rows] = 6e-8
        blocks[:, :, at : at + 2] = scale[..., None].view(np.uint8)
    if type_name == "MXFP4":  # exponents on both sides of 2^-30 in row 2, moderate elsewhere
        blocks[:, :, 0] = rng.integers(115, 125, blocks.shape[:2])
        blocks[2 % num_rows, :, 0] = rng.integers(0, 120, blocks.shape[1])
    raw = blocks.reshape(num_rows, -1)
    return Tensor("w", shape, TypeOf(type_name, quant.block, quant.num_bytes), raw)


def raw_of(type_name: str, values: np.ndarray) -> np.ndarray:
    """Float32 values as the raw rows of a float type."""
    if type_name == "BF16":
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    dtype = np.float16 if type_name == "F16" else np.float32
    return np.ascontiguousarray(values.astype(dtype)).view(np.uint8)
