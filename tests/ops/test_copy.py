"""copy: by equality."""

import numpy as np
import pytest
from levels import LEVELS

from specrt._ext.host_ops import Tape
from specrt.errors import MismatchError
from specrt.host.copy import copy as host_copy
from specrt.reference.copy import copy


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
def test_rows_are_copied_and_nothing_else(level, dtype):
    rng = np.random.default_rng(1)
    x = rng.integers(0, 200, (9, 77)).astype(dtype)
    expected, got = np.full((2, 12, 231), 201, dtype)
    copy(x, out=expected[:9, 77:154])
    tape = Tape(level)
    host_copy(tape, x, out=got[:9, 77:154])
    tape.run()
    assert (got == expected).all() and (got[:9, 77:154] == x).all()
    assert (got[9:] == 201).all() and (got[:, :77] == 201).all() and (got[:, 154:] == 201).all()


def test_wrong_arguments_are_refused():
    x = np.zeros((3, 8), np.float32)
    for out in (x[:2], x.astype(np.float64), np.zeros((3, 16), np.float32)[:, ::2], x[0]):
        with pytest.raises(MismatchError, match="copy"):
            host_copy(Tape(0), x, out=out)
