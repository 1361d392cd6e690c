"""Which ids of the target the rows of a drafter's reduced head stand for."""

from __future__ import annotations

import numpy as np

from specrt.errors import FormatError, MismatchError
from specrt.models.loader import Loader


def read_names(loader: Loader, vocab_size: int) -> np.ndarray | None:
    """``d2t``: [Vd] int32, the target's id of each row of a reduced head; None without one.

    ``dflash`` files hold the ids themselves. Elsewhere it is usual to hold ``id - row``: a list
    that names an id twice can only be that, and is read so if then it names each once.

    Raises:
        FormatError: these are no ids of the target, read either way.
        MismatchError: there is no such head.
    """
    if not loader.has("d2t"):
        return None
    path, size = loader.gguf.path, loader.gguf.tensors["d2t"].shape
    if not loader.has("output.weight"):
        raise MismatchError(f"{path}: d2t without output.weight: it names the rows of such a head")
    stored = loader.tensor("d2t", size)
    kind = stored.type.name
    if len(size) != 1 or not size[0] or kind not in ("I64", "I32"):
        raise FormatError(f"{path}: d2t is {kind} {size}, expected a list of I64 ids")
    ids = stored.numpy().astype(np.int64)
    for names in (ids, ids + np.arange(len(ids))):
        if 0 <= names.min() <= names.max() < vocab_size and len(np.unique(names)) == len(names):
            return names.astype(np.int32)
    raise FormatError(
        f"{path}: d2t holds values from {ids.min()} to {ids.max()}, expected different ids from 0 "
        f"to {vocab_size - 1}, or what each is above its row: convert the drafter again"
    )
