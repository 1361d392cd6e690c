"""What the launchers of every op set check before a kernel may touch an array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from specrt.errors import MismatchError

if TYPE_CHECKING:
    from specrt.state.step import StepInputs


def check(name: str, array: Any, dtype: type, shape: tuple[int, ...]) -> None:
    """Raise ``MismatchError`` unless the array is C-contiguous with this dtype and shape."""
    if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
        kind = "" if array.flags.c_contiguous else "strided "
        raise MismatchError(
            f"{name} is a {kind}{array.dtype} array of shape {array.shape}; "
            f"expected contiguous {np.dtype(dtype)} {shape}"
        )


def check_accept(ids: Any, step: StepInputs, out: Any) -> None:
    """Raise ``MismatchError`` unless ids are [T] int32 and out is [B, 3] int32 for the step."""
    check("accept: ids", ids, np.int32, (len(ids),))
    check("accept: out", out, np.int32, (len(step.row_offsets) - 1, 3))
    if len(step.tokens) < len(ids):
        raise MismatchError(f"accept: {len(ids)} rows; the step inputs hold {len(step.tokens)}")


def check_copy(x: Any, out: Any) -> None:
    """Raise ``MismatchError`` unless both are [T, N] of one dtype with adjacent columns."""
    _check_rows("copy: x", x)
    _check_rows("copy: out", out)
    if x.dtype != out.dtype or x.shape != out.shape:
        raise MismatchError(
            f"copy: out is {out.dtype} {out.shape}; expected {x.dtype} {x.shape} as x"
        )


def check_select(x: Any, index: Any, out: Any) -> None:
    """Raise ``MismatchError`` unless x, out are [T, N], [n, N] of one dtype, index is [n] int32."""
    _check_rows("select: x", x)
    _check_rows("select: out", out)
    check("select: index", index, np.int32, (len(out),))
    if x.dtype != out.dtype or x.shape[1] != out.shape[1]:
        raise MismatchError(
            f"select: out is {out.dtype} {out.shape}; expected rows as x has, {x.dtype} {x.shape}"
        )


def _check_rows(name: str, array: Any) -> None:
    if array.ndim != 2 or array.strides[1] != array.itemsize:
        raise MismatchError(
            f"{name} has shape {array.shape} and strides {array.strides}; "
            "expected [T, N] with adjacent columns"
        )


def check_acts(op: str, acts: Any, shape: tuple[int, int]) -> None:
    """Raise ``MismatchError`` unless the acts hold rows of this shape, or more."""
    if acts.num_rows < shape[0] or acts.width != shape[1]:
        raise MismatchError(
            f"{op}: the acts hold {acts.num_rows} rows of width {acts.width}; expected at least "
            f"{shape[0]} of {shape[1]}"
        )


def check_results(op: str, out: Any | None, acts: Any | None, shape: tuple[int, int]) -> None:
    """Raise ``MismatchError`` unless there is out or acts, f32 and rows of this shape."""
    if out is not None:
        check(f"{op}: out", out, np.float32, shape)
    if acts is not None:
        check_acts(op, acts, shape)
    if out is None and (acts is None or acts.x is acts.first is None):
        raise MismatchError(f"{op}: neither out nor a form of acts; expected one to write")


def check_glu(gate: Any, up: Any, out: Any | None, acts: Any | None) -> None:
    """Raise ``MismatchError`` unless gate, up and out are [T, F] f32, and acts hold such rows."""
    shape = (len(gate), gate.shape[-1])
    for name, array in (("gate", gate), ("up", up)):
        check(f"glu: {name}", array, np.float32, shape)
    check_results("glu", out, acts, shape)


def check_rms_norm(
    x: Any, weight: Any | None, out: Any | None, add: Any | None, acts: Any | None
) -> None:
    """Raise ``MismatchError`` unless x, out, add are [T, D] f32, weight [D], and acts such rows."""
    check("rms_norm: x", x, np.float32, (len(x), x.shape[-1]))
    check_results("rms_norm", out, acts, x.shape)
    if weight is not None:
        check("rms_norm: weight", weight, np.float32, (x.shape[1],))
    if add is not None:
        check("rms_norm: add", add, np.float32, x.shape)
