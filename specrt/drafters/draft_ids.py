"""The ids that a draft head may guess: on small models the LM head is most of a draft."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from specrt.errors import OptionError


def read_draft_ids(path: str | os.PathLike[str], vocab_size: int) -> np.ndarray:
    """The ids in a file, one a line.

    Returns:
        [n] int64, ascending.

    Raises:
        OptionError: the file cannot be read, or holds something else.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").split()
        ids = sorted({int(line) for line in lines})
    except (OSError, ValueError) as error:
        raise OptionError(
            f"{path}: {error}: expected a file of ids, one a line, as "
            "`python -m specrt count-ids` prints them"
        ) from None
    if not ids or not 0 <= ids[0] <= ids[-1] < vocab_size:
        raise OptionError(
            f"{path}: {len(ids)} ids{f' from {ids[0]} to {ids[-1]}' if ids else ''}; expected some "
            f"from 0 to {vocab_size - 1}"
        )
    return np.array(ids)


def most_frequent(ids: Iterable[int], num_ids: int) -> list[int]:
    """The ids that occur most often, the most frequent first, equal ones ascending."""
    counted = Counter(ids)
    return sorted(counted, key=lambda one: (-counted[one], one))[:num_ids]
