"""load_rows: as rows laid side by side and quantised, by equality."""

from functools import partial

import numpy as np
import pytest
from emulated import SEEDS, Recorder, needs_emulator, placed
from levels import LEVELS
from rows import PREPARED, assert_prepared, assert_same_bits, empty_acts, forms_of, hostile_rows

from specrt._ext.host_ops import Tape
from specrt.acts import Acts, Int8Rows
from specrt.errors import MismatchError
from specrt.host.acts import HostInt8Rows
from specrt.host.load_rows import load_rows as host_load_rows
from specrt.host.store_rows import store_rows as host_store_rows
from specrt.kernels.load_rows import load_rows as kernel_load_rows
from specrt.reference.load_rows import load_rows
from specrt.state.step import StepInputs

SLOTS = 3
POSITIONS, SEQS = [13, 14, 15, 16, 17, 18, 19, 0, 1, 2, 20], [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0]
SHAPES = {
    "one": [(5, 96)],
    "whole blocks": [(5, 64), (7, 32), (3, 160)],
    "shared blocks": [(5, 36), (7, 24), (4, 4), (9, 32)],
    "odd": [(5, 37), (7, 26), (4, 1)],
    "ragged": [(5, 37), (7, 26)],
    "long": [(8, 1060), (8, 1052), (4, 1088)],
    "sixteen": [*((1 + i, 4 + 4 * i % 24) for i in range(15)), (3, 32)],
}
"""Length and width of each ring."""


def on_host(level):
    def run(rings, step, acts):
        tape = Tape(level)
        host_load_rows(tape, rings, step, acts=acts)
        tape.run()
        assert tape.num_phases == 1

    return run


ALL = {"reference": lambda rings, step, acts: load_rows(rings, step, acts=acts)}
ALL |= {name: on_host(level) for name, level in LEVELS.items()}


def two_sequences(rows=slice(None), buffer=np.zeros):
    """Rows from 13 on of a sequence in slot 2, and of one in slot 0 from 0 on."""
    step = StepInputs(12, 2, 1, 0, buffer)
    step.positions[: len(POSITIONS[rows])] = POSITIONS[rows]
    step.row_seqs[: len(SEQS[rows])] = SEQS[rows]
    step.slots[:] = 2, 0
    return step


def rings_of(shapes):
    """Full of rows, some of which no quantiser likes."""
    rings = []
    for seed, (length, width) in enumerate(shapes):
        rows = hostile_rows(max(9, SLOTS * length), max(96, width), seed)
        rings.append(rows[: SLOTS * length, :width].reshape(SLOTS, length, width).copy())
    return rings


def expected_rows(rings, rows=slice(None)):
    """By rows, one after the other."""
    slots = [(2, 0)[seq] for seq in SEQS[rows]]
    found = [
        np.concatenate([ring[slot, position % ring.shape[1]] for ring in rings])
        for slot, position in zip(slots, POSITIONS[rows], strict=True)
    ]
    return np.stack(found)


CASES = [
    pytest.param(shapes, kind, id=f"{name}-{kind}")
    for name, shapes in SHAPES.items()
    for kind in PREPARED
    if name != "ragged" or kind == "float"
]


@pytest.mark.parametrize("run", ALL.values(), ids=ALL)
@pytest.mark.parametrize(("shapes", "kind"), CASES)
def test_rows_of_rings_lie_side_by_side(shapes, kind, run):
    rings = rings_of(shapes)
    rows = expected_rows(rings)
    layout = Int8Rows if run is ALL["reference"] else HostInt8Rows
    acts = empty_acts(kind, *rows.shape, layout)
    run(rings, two_sequences(), acts)
    assert_prepared(acts, rows, kind)


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
def test_what_was_stored_is_loaded(level):
    x = np.random.default_rng(3).standard_normal((2, len(POSITIONS), 64), dtype=np.float32)
    rings = [np.full((SLOTS, length, 64), np.nan, np.float32) for length in (8, 11)]
    step, tape, acts = two_sequences(), Tape(level), empty_acts("float", len(POSITIONS), 128)
    for values, ring in zip(x, rings, strict=True):
        host_store_rows(tape, values, step, out=ring)
    host_load_rows(tape, rings, step, acts=acts)
    tape.run()
    assert_same_bits(acts.x, np.concatenate(list(x), axis=1))


def some_rows(run, int8_rows, buffer):
    """Each part of the rows is what the whole has there."""
    rings = [buffer(ring) for ring in rings_of(SHAPES["shared blocks"])]
    for rows in (slice(0, 1), slice(1, 3), slice(3, 11), slice(7, 8), slice(0, 0)):
        expected = expected_rows(rings, rows) if len(POSITIONS[rows]) else np.zeros((0, 96))
        acts = empty_acts("all forms", len(expected), 96, int8_rows)
        step = two_sequences(rows, lambda shape, dtype: buffer(np.zeros(shape, dtype)))
        run(rings, step, acts)
        if len(expected):
            assert_prepared(acts, expected, "all forms")


def test_a_row_does_not_know_of_the_others():
    def run(rings, step, acts):
        tape = Tape(max(LEVELS.values()))
        host_load_rows(tape, rings, step, acts=acts)
        tape.run()

    some_rows(run, HostInt8Rows, np.copy)


@needs_emulator
@pytest.mark.parametrize(("shapes", "kind"), CASES)
def test_the_kernel_lays_rows_side_by_side(shapes, kind):
    rows = expected_rows(rings_of(shapes))
    fours = all(width % 4 == 0 for _, width in shapes)
    for seed in SEEDS:
        for offset in (0, 4):
            device = Recorder(seed)
            rings = [placed(ring, offset) for ring in rings_of(shapes)]
            step = two_sequences(buffer=lambda shape, dtype: placed(np.zeros(shape, dtype)))
            acts = empty_acts(kind, *rows.shape)
            kernel_load_rows(device, rings, step, acts=acts)
            assert_prepared(acts, rows, kind)
            assert device.entries == [f"load_rows_x{4 if fours and not offset else 1}"]


@needs_emulator
def test_a_row_of_the_kernel_does_not_know_of_the_others():
    device = Recorder(1)
    some_rows(
        lambda rings, step, acts: kernel_load_rows(device, rings, step, acts=acts),
        Int8Rows,
        placed,
    )
    assert len(device.entries) == 4  # none for no rows


@pytest.mark.parametrize("launch", [host_load_rows, kernel_load_rows])
def test_wrong_arguments_are_refused(launch):
    host = launch is host_load_rows
    rings, step = rings_of(SHAPES["whole blocks"]), two_sequences()
    room = partial(empty_acts, "int8", int8_rows=HostInt8Rows if host else Int8Rows)
    for wrong, acts in (
        ([], room(11, 256)),
        (rings * 6, room(11, 6 * 256)),
        (rings, room(11, 288)),
        (rings, room(13, 256)),
        (rings, Acts(11, 256, None, None, None)),
        ([*rings[:2], rings[2].astype(np.float64)], room(11, 256)),
        ([*rings[:2], rings[2][:, ::2]], room(11, 256)),
        ([*rings[:2], rings[2][:, :0]], room(11, 256)),
        ([*rings[:2], rings[2][0]], room(11, 256)),
    ):
        before = [array.copy() for array in forms_of(acts)] if acts.first else []
        with pytest.raises(MismatchError, match="load_rows"):
            launch(Tape(0) if host else Recorder(), wrong, step, acts=acts)
        for array, old in zip(forms_of(acts) if before else [], before, strict=True):
            assert_same_bits(array, old)
