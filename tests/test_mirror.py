"""One op has one stem in every place."""

import inspect
from importlib import import_module
from pathlib import Path

import pytest

from specrt.bench.op_cases import OPS as BENCHED
from specrt.host import HostOps
from specrt.kernels import KernelOps
from specrt.ops import Ops
from specrt.reference import ReferenceOps

ROOT = Path(__file__).parent.parent
NOT_OPS = {"record", "buffer", "weight", "table", "vector", "acts", "step_inputs"}
NOT_OPS |= {"expert_weight", "routed"}
NOT_OPS |= {"draws", "recurrent_layer", "kv_layer", "kv_read", "kv_write", "assign", "to_host"}
TABLE = {
    name: member for name, member in inspect.getmembers(Ops, inspect.isfunction) if name[0] != "_"
}
OPS = sorted(set(TABLE) - NOT_OPS)
DRAWS = {"sample"}
"""Of the table ``draws`` makes what records them: their meaning is ``reference.sampling``."""


@pytest.mark.parametrize("op", OPS)
def test_an_op_has_one_stem(op):
    for file in (
        f"specrt/reference/{op}.py",
        f"specrt/host/{op}.py",
        f"specrt/_ext/host/kernels/{op}.c",
        f"specrt/kernels/{op}.py",
        f"cuda/{op}.cu",
        f"tests/ops/test_{op}.py",
    ):
        assert (ROOT / file).exists(), file
    reference = getattr(import_module(f"specrt.reference.{op}"), op)
    launcher = getattr(import_module(f"specrt.host.{op}"), op)
    assert list(inspect.signature(launcher).parameters)[1:] == list(
        inspect.signature(reference).parameters
    )


def test_the_tests_kernels_and_benchmarks_are_those_of_the_ops():
    tests = {path.stem.removeprefix("test_") for path in (ROOT / "tests/ops").glob("test_*.py")}
    assert tests == set(OPS) | DRAWS
    kernels = {path.stem for path in (ROOT / "specrt/_ext/host/kernels").glob("*.c")}
    # tile.c is what linear and head share; pack.c and machine_speed.c are no ops of a model.
    assert kernels - {"tile", "pack", "machine_speed"} == set(OPS) | DRAWS
    assert set(BENCHED) == set(OPS)


KERNELS = {path.stem for path in (ROOT / "cuda").glob("*.cu")}


@pytest.mark.parametrize("op", sorted(KERNELS - DRAWS))
def test_a_cuda_kernel_has_the_stem_of_its_op(op):
    assert op in OPS
    reference = getattr(import_module(f"specrt.reference.{op}"), op)
    launcher = getattr(import_module(f"specrt.kernels.{op}"), op)
    parameters = list(inspect.signature(launcher).parameters)[1:]
    if parameters[-1] == "scratch":  # the op set's own
        parameters.pop()
    assert parameters == list(inspect.signature(reference).parameters)


def test_launchers_are_those_of_the_cuda_kernels():
    launchers = {path.stem for path in (ROOT / "specrt/kernels").glob("*.py")}
    assert launchers & (set(OPS) | DRAWS) == KERNELS != set()


@pytest.mark.parametrize("op", sorted(DRAWS))
def test_draws_have_one_launcher_in_every_op_set(op):
    host, kernels = (
        list(inspect.signature(getattr(import_module(f"specrt.{place}.{op}"), op)).parameters)[1:]
        for place in ("host", "kernels")
    )
    assert host == kernels


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("ops", [ReferenceOps, HostOps, KernelOps])
def test_op_sets_have_the_table_and_its_parameters(ops, name):
    expected = inspect.signature(TABLE[name]).parameters.values()
    got = inspect.signature(getattr(ops, name)).parameters.values()
    assert [(p.name, p.kind, p.default) for p in got] == [
        (p.name, p.kind, p.default) for p in expected
    ]
