"""Every op case at every instruction set of the machine, checked against its twin first."""

import pytest

from specrt.bench.op_cases import OPS
from specrt.bench.ops import checked_call
from specrt.host import HostOps, available_levels

CASES = [
    pytest.param(op, case, id=f"{op} {case}") for op, bench in OPS.items() for case in bench.cases
]


@pytest.mark.parametrize("level", available_levels())
@pytest.mark.parametrize(("op", "case"), CASES)
def test_op(benchmark, op, case, level):
    call = checked_call(op, case, HostOps(level=level))
    benchmark(call.run)
    if benchmark.enabled:
        benchmark.extra_info["GB/s"] = call.num_bytes / benchmark.stats.stats.median / 1e9
