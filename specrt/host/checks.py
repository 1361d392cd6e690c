"""What launchers check before a kernel may touch a buffer."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import MismatchError


def check(name: str, array: Any, dtype: type, shape: tuple[int, ...]) -> None:
    """Raise ``MismatchError`` unless the array is C-contiguous with this dtype and shape."""
    if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
        kind = "" if array.flags.c_contiguous else "strided "
        raise MismatchError(
            f"{name} is a {kind}{array.dtype} array of shape {array.shape}; "
            f"expected contiguous {np.dtype(dtype)} {shape}"
        )
