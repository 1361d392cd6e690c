"""Op cases: a case's calls agree with the twin, and one that does not is never timed."""

import json
from dataclasses import replace

import numpy as np
import pytest

from specrt.bench import ops
from specrt.bench.__main__ import main
from specrt.bench.cases import (
    TYPES,
    AcceptCase,
    AttentionCase,
    DraftCase,
    LinearCase,
    MarkovCase,
    RecurrentCase,
    RopeCase,
)
from specrt.bench.op_calls import Call, random_tensor
from specrt.bench.op_cases import OPS, OpBench
from specrt.bench.timing import WrongResultError
from specrt.host import HostOps, available_levels
from specrt.ops import Ops
from specrt.reference.quant_blocks import dequantize


def small(case):
    """The case with sizes that portable C computes at once."""
    if isinstance(case, AcceptCase | DraftCase):
        return case
    if isinstance(case, LinearCase | MarkovCase):
        return replace(case, outputs=64, width=256)
    if isinstance(case, AttentionCase | RopeCase):
        return replace(case, length=70)
    if isinstance(case, RecurrentCase):
        return replace(case, key_heads=2, value_heads=4, dim=24)
    return replace(case, width=256)


@pytest.mark.parametrize("level", available_levels())
@pytest.mark.parametrize("op", OPS)
def test_host_and_twin_agree_on_every_kind_of_case(op, level):
    host = HostOps(threads=1, level=level)
    for case in {small(case): None for case in OPS[op].cases}:
        call = ops.checked_call(op, case, host)
        assert call.num_bytes > 0
        for result in call.results():
            assert result.any()
            if result.dtype.kind == "f":
                assert np.isfinite(result).all()


@pytest.mark.parametrize("op", OPS)
def test_a_wrong_result_has_no_time(op, monkeypatch):
    """A float of the first row is off by a part in a thousand, or a code by its lowest bit."""
    bench = OPS[op]

    def bind(on: Ops, case: object) -> Call:
        call = bench.bind(on, case)

        def results():
            found = call.results()
            if isinstance(on, HostOps):
                row = found[0][0].reshape(-1)
                at = int(np.argmax(np.abs(row)))
                row[at] = row[at] * 1.001 if row.dtype.kind == "f" else row[at] ^ 1
            return found

        return replace(call, results=results)

    wrong = OpBench(bench.cases, bind, bench.exact, lambda case: case)
    monkeypatch.setattr(ops, "OPS", {op: wrong})
    with pytest.raises(WrongResultError, match="differs from the reference"):
        ops.checked_call(op, small(bench.cases[0]), HostOps(threads=1))


@pytest.mark.parametrize("kind", TYPES)
def test_random_weights_are_finite_and_a_smaller_matrix_is_the_beginning(kind):
    large, few = (random_tensor(kind, rows, 512) for rows in (50, 7))
    assert (large.raw[:7] == few.raw).all()
    values = dequantize(kind, large.raw)
    assert np.isfinite(values).all() and len(np.unique(values)) > 10


def test_the_command(tmp_path, capsys):
    file = tmp_path / "ops.json"
    flags = ["--op", "copy,glu", "--level", "portable", "--seconds", "0.001", "--threads", "1"]
    assert main(["ops", *flags, "--json", str(file)]) == 0
    assert "GB/s" in capsys.readouterr().out
    saved = json.loads(file.read_text())
    assert saved["complete"] and saved["machine"]["level"] == "portable"
    results = saved["results"]
    assert {one["op"] for one in results} == {"copy", "glu"}
    assert len(results) == len(OPS["copy"].cases) + len(OPS["glu"].cases)
    assert all(one["microseconds"] > 0 and one["gigabytes_per_second"] > 0 for one in results)
    assert all(one["rounds"] >= ops.LEAST_ROUNDS for one in results)


def test_an_interrupt_keeps_what_was_measured(tmp_path, monkeypatch):
    measure = ops.measure

    def interrupted(*arguments):
        yield next(measure(*arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr(ops, "measure", interrupted)
    file = tmp_path / "ops.json"
    flags = ["--op", "copy", "--level", "portable", "--seconds", "0.001", "--json", str(file)]
    assert main(["ops", *flags]) == 130
    saved = json.loads(file.read_text())
    assert not saved["complete"] and len(saved["results"]) == 1


@pytest.mark.parametrize("op", ["glu", "rms_norm"])
def test_wrongly_prepared_rows_are_told(op):
    class Wrong(HostOps):
        def quantize(self, x, *, out):
            super().quantize(x, out=out)
            out.first.q.reshape(-1)[0] ^= 1

    case = next(case for case in OPS[op].cases if case.prepares)
    with pytest.raises(WrongResultError, match="prepared rows"):
        OPS[op].bind(Wrong(threads=1), small(case)).results()
