"""verify-kernels: what holds, what is told when it does not, and that nothing is left out."""

import json

import accuracy
import numpy as np
import pytest
from emulated import needs_emulator

from specrt.acts import input_form
from specrt.bench import verify
from specrt.bench.__main__ import main
from specrt.bench.cases import TYPES
from specrt.bench.op_cases import OPS
from specrt.bench.verify_cases import CHECKS, WIDTHS
from specrt.host import HostOps
from specrt.kernels.linear import DOT, F32, MMA, TILED, choose_form
from specrt.ops import PAGE
from specrt.reference import ReferenceOps


def test_every_op_and_every_type_is_there():
    assert {check.op for check in CHECKS} == set(OPS)
    for op in ("embed", "linear"):
        (check,) = (check for check in CHECKS if check.op == op)
        assert {case.type for case in check.cases} == set(TYPES)
    assert verify.FLOOR == accuracy.FLOOR


def test_what_else_an_op_takes_is_there():
    cases = {op: [c for check in CHECKS if check.op == op for c in check.cases] for op in OPS}
    assert {"bias", "add", "others"} <= {
        name for c in cases["linear"] for name in ("bias", "add", "others") if getattr(c, name)
    }
    assert any(c.block for c in cases["attention"])
    assert any(c.softcap for c in cases["head"])
    assert {bool(c.softcap) for c in cases["head"] if c.scale != 1} == {True, False}
    assert any(c.pairing == "interleaved" for c in cases["rope_kv"])
    assert any(not c.turns for c in cases["rope_kv"])
    for op in ("attention", "rope_kv"):
        rings = [c for c in cases[op] if c.ring_pages]
        assert rings and all(c.length > c.ring_pages * PAGE for c in rings)
    assert any((c.length - c.rows) // PAGE % 3 > (c.length - 1) // PAGE % 3 for c in rings)


def test_every_form_of_linear_is_there():
    (check,) = (check for check in CHECKS if check.op == "linear")
    forms = {choose_form(input_form(c.type, c.role), c.rows) for c in check.cases}
    assert forms == {DOT, *MMA, TILED, *F32}


def test_the_share_of_an_error():
    exact = np.array([1.0, -2.0])
    near, far = (exact + error for error in (1e-4, 3e-4))
    assert verify.error_share(far, near, exact) == pytest.approx(3e-4 / (2e-4 + 2e-6))
    assert verify.error_share(exact, exact, exact) == 0
    assert np.isnan(verify.error_share(exact * np.nan, near, exact))
    assert not verify.Verified("glu", {}, False, float("nan"), 0).holds


def test_the_host_holds(tmp_path, capsys):
    file = tmp_path / "verified.json"
    assert main(["verify-kernels", "--device", "cpu", "--json", str(file)]) == 0
    saved = json.loads(file.read_text())
    assert saved["complete"] and saved["settings"]["device"] == "cpu"
    assert len(saved["results"]) == sum(len(check.cases) for check in CHECKS)
    assert all(one["holds"] for one in saved["results"])
    assert any(one["share"] for one in saved["results"])
    assert "equal bits" in capsys.readouterr().out


class Wrong(ReferenceOps):
    """Ops that are off, leave a value out, or leave a NaN."""

    def glu(self, gate, up, *, activation, out, acts=None):
        super().glu(gate, up, activation=activation, out=out, acts=acts)
        if gate.shape[1] in WIDTHS:
            self._do(lambda: out.__setitem__((0, 0), out[0, 0] + np.float32(1e-3)))

    def copy(self, x, *, out):
        super().copy(x[:, :-1], out=out[:, :-1])

    def rms_norm(self, x, weight, eps, *, out, add=None, acts=None):
        if x.shape[1] in WIDTHS:
            x, out = x[:-1], out[:-1]
            add = None if add is None else add[:-1]
        super().rms_norm(x, weight, eps, out=out, add=add, acts=acts)


@pytest.mark.parametrize(
    ("op", "words"),
    [("glu", "glu activation=silu"), ("copy", "9 values differ"), ("rms_norm", "nan")],
)
def test_what_is_wrong_is_told(op, words, monkeypatch, capsys):
    monkeypatch.setattr(verify, "make_ops", lambda device: Wrong())
    assert main(["verify-kernels", "--op", f"{op},select"]) == 1
    told = capsys.readouterr().out
    assert words in told and "NO" in told and "select width" not in told


def test_wrong_arguments():
    assert main(["verify-kernels", "--op", "glue"]) == 2
    assert main(["verify-kernels", "--device", "tpu"]) == 2


@needs_emulator
def test_the_kernels_hold_in_the_emulator(capsys):
    assert main(["verify-kernels", "--device", "emulator"]) == 0, capsys.readouterr().out


def test_an_interrupt_keeps_what_was_verified(tmp_path, monkeypatch):
    (check,) = (check for check in CHECKS if check.op == "copy")

    def interrupted(ops, names):
        yield verify.verify_case(HostOps(threads=1), check.op, check.cases[0], check.exact)
        raise KeyboardInterrupt

    monkeypatch.setattr(verify, "verify", interrupted)
    file = tmp_path / "verified.json"
    assert main(["verify-kernels", "--device", "cpu", "--json", str(file)]) == 130
    saved = json.loads(file.read_text())
    assert not saved["complete"] and len(saved["results"]) == 1
