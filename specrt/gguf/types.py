"""The GGML tensor types that specrt reads, with their block layout in bytes."""

from __future__ import annotations

from dataclasses import dataclass

from specrt.errors import FormatError, UnsupportedError

__all__ = ["TENSOR_TYPES", "TensorType", "type_by_id", "type_by_name"]


@dataclass(frozen=True, slots=True)
class TensorType:
    """How a row is stored: blocks of ``block_size`` values in ``block_bytes`` bytes each.

    ``dtype`` names the NumPy dtype of a stored value where there is one (BF16 has none).
    """

    name: str
    id: int
    block_size: int
    block_bytes: int
    dtype: str | None = None

    @property
    def is_quantized(self) -> bool:
        return self.block_size > 1

    def row_bytes(self, num_values: int) -> int:
        """Bytes of a row of ``num_values``, which is a multiple of ``block_size``."""
        return num_values // self.block_size * self.block_bytes


TENSOR_TYPES: tuple[TensorType, ...] = (
    TensorType("F32", 0, 1, 4, "<f4"),
    TensorType("F16", 1, 1, 2, "<f2"),
    TensorType("Q4_0", 2, 32, 18),
    TensorType("Q4_1", 3, 32, 20),
    TensorType("Q5_0", 6, 32, 22),
    TensorType("Q5_1", 7, 32, 24),
    TensorType("Q8_0", 8, 32, 34),
    TensorType("Q2_K", 10, 256, 84),
    TensorType("Q3_K", 11, 256, 110),
    TensorType("Q4_K", 12, 256, 144),
    TensorType("Q5_K", 13, 256, 176),
    TensorType("Q6_K", 14, 256, 210),
    TensorType("IQ2_XXS", 16, 256, 66),
    TensorType("IQ2_XS", 17, 256, 74),
    TensorType("IQ3_XXS", 18, 256, 98),
    TensorType("IQ4_NL", 20, 32, 18),
    TensorType("IQ3_S", 21, 256, 110),
    TensorType("IQ2_S", 22, 256, 82),
    TensorType("IQ4_XS", 23, 256, 136),
    TensorType("I8", 24, 1, 1, "|i1"),
    TensorType("I16", 25, 1, 2, "<i2"),
    TensorType("I32", 26, 1, 4, "<i4"),
    TensorType("I64", 27, 1, 8, "<i8"),
    TensorType("F64", 28, 1, 8, "<f8"),
    TensorType("BF16", 30, 1, 2),
    TensorType("MXFP4", 39, 32, 17),
)

_BY_ID = {t.id: t for t in TENSOR_TYPES}
_BY_NAME = {t.name: t for t in TENSOR_TYPES}
_NOT_RUN = {
    4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 15: "Q8_K", 19: "IQ1_S", 29: "IQ1_M",
    31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 34: "TQ1_0", 35: "TQ2_0",
    36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8", 40: "NVFP4", 41: "Q1_0",
}  # fmt: skip


def type_by_id(type_id: int) -> TensorType:
    """Look a type up by its GGML id.

    Raises:
        UnsupportedError: GGML has the type, specrt does not run it.
        FormatError: there is no such type.
    """
    if type_id in _BY_ID:
        return _BY_ID[type_id]
    known = ", ".join(_BY_NAME)
    if type_id in _NOT_RUN:
        raise UnsupportedError(
            f"tensor type {_NOT_RUN[type_id]} (id {type_id}) is not run by specrt, "
            f"which knows {known}; take the model in one of these types"
        )
    raise FormatError(
        f"got tensor type id {type_id}, which GGML does not define; expected one of {known}: "
        "the file is damaged, or of a newer GGML"
    )


def type_by_name(name: str) -> TensorType:
    """Look a type up by its GGML name, as ``Q4_K``.

    Raises:
        UnsupportedError: specrt has no type of that name.
    """
    if name in _BY_NAME:
        return _BY_NAME[name]
    raise UnsupportedError(f"got tensor type {name!r}; specrt knows {', '.join(_BY_NAME)}")
