"""What the launchers of every op set check before a kernel may touch an array."""

from __future__ import annotations

from typing import Any

import numpy as np

from specrt.errors import MismatchError


def check(name: str, array: Any, dtype: type, shape: tuple[int, ...]) -> None:
    """Raise ``MismatchError`` unless the array is C-contiguous with this dtype and shape."""
    if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
        kind = "" if array.flags.c_contiguous else "strided "
        raise MismatchError(
            f"{name} is a {kind}{array.dtype} array of shape {array.shape}; "
            f"expected contiguous {np.dtype(dtype)} {shape}"
        )


def check_copy(x: Any, out: Any) -> None:
    """Raise ``MismatchError`` unless both are [T, N] of one dtype with adjacent columns."""
    for name, array in (("x", x), ("out", out)):
        if array.ndim != 2 or array.strides[1] != array.itemsize:
            raise MismatchError(
                f"copy: {name} has shape {array.shape} and strides {array.strides}; "
                "expected [T, N] with adjacent columns"
            )
    if x.dtype != out.dtype or x.shape != out.shape:
        raise MismatchError(
            f"copy: out is {out.dtype} {out.shape}; expected {x.dtype} {x.shape} as x"
        )


def check_top_k(logits: Any, ids: Any, values: Any) -> None:
    """Raise ``MismatchError`` unless [T, V] f32 has k <= min(V, 64) ids int32 and values f32."""
    check("top_k: logits", logits, np.float32, (len(logits), logits.shape[-1]))
    check("top_k: ids", ids, np.int32, (len(logits), ids.shape[-1]))
    check("top_k: values", values, np.float32, ids.shape)
    if not 0 < ids.shape[1] <= min(64, logits.shape[1]):
        raise MismatchError(
            f"top_k: {ids.shape[1]} of {logits.shape[1]} logits; expected 1 to 64, and no more "
            "than there are"
        )


def check_rms_norm(x: Any, weight: Any | None, out: Any, add: Any | None) -> None:
    """Raise ``MismatchError`` unless x, out and add are [T, D] f32, and weight is [D] f32."""
    check("rms_norm: x", x, np.float32, (len(x), x.shape[-1]))
    check("rms_norm: out", out, np.float32, x.shape)
    if weight is not None:
        check("rms_norm: weight", weight, np.float32, (x.shape[1],))
    if add is not None:
        check("rms_norm: add", add, np.float32, x.shape)
