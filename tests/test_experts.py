"""What layers with experts have in common, and what is refused."""

from types import SimpleNamespace

import numpy as np
import pytest

from specrt.errors import MismatchError
from specrt.experts import Experts, Routed, Sizes, experts_of, sizes_of


def weight(count, rows, columns):
    return SimpleNamespace(num_experts=count, shape=(rows, columns))


def experts(count=5, hidden=24, width=40, num_used=2):
    sides = (weight(count, hidden, width), weight(count, hidden, width))
    return Experts(*sides, weight(count, width, hidden), num_used)


def test_sizes_are_those_of_all_layers():
    assert sizes_of([experts(), experts()]) == Sizes(5, 40, 24, 2)
    for other in (experts(count=6), experts(hidden=25), experts(width=41), experts(num_used=1)):
        with pytest.raises(MismatchError, match="all of one size"):
            sizes_of([experts(), other])


def test_matrices_that_do_not_fit_are_refused():
    experts().check()
    experts(num_used=5).check()
    one = experts()
    for wrong in (
        Experts(one.gate, weight(5, 25, 40), one.down, 2),
        Experts(one.gate, one.up, weight(5, 24, 40), 2),
        Experts(one.gate, weight(4, 24, 40), one.down, 2),
        experts(num_used=0),
        experts(num_used=6),
    ):
        with pytest.raises(MismatchError, match="gate, up and down are"):
            wrong.check()


def test_rows_share_the_room():
    made = []

    def room(num_pairs, layers, buffer):
        made.append((num_pairs, len(layers)))
        return "room"

    routed = Routed.empty(7, [experts(), experts()], np.zeros, room)
    assert made == [(14, 2)]
    few = routed.rows(3)
    assert few.ids.shape == few.weights.shape == (3, 2) and few.room == "room"
    few.ids[:] = 1
    assert routed.ids.sum() == 6


def test_what_is_no_stack_of_matrices_is_refused():
    for shape in ((3, 4), (0, 3, 4), (2, 3, 4, 5)):
        stack = SimpleNamespace(name="blk.0.w", shape=shape, raw=np.zeros(shape, np.uint8))
        with pytest.raises(MismatchError, match=r"blk\.0\.w has shape"):
            next(experts_of(stack))
