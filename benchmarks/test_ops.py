"""Every op over SmolLM2's shapes, or a test model's; a result is checked before its time."""

import pytest

from specrt.bench.cases import NUM_ROWS
from specrt.bench.ops import check, op_cases
from specrt.gguf.reader import open_gguf
from specrt.host import HostOps
from specrt.pull import cached
from tests.models_on_disk import golden_path

GGUF = open_gguf(cached("smollm2-135m") or golden_path("llama-quant"))
CASES = [case for num_rows in NUM_ROWS for case in op_cases(GGUF, num_rows)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.op}-{case.label}-{case.num_rows}")
def test_op(benchmark, case):
    ops = HostOps()
    bound = case.bind(ops, 2**31)
    with ops.record() as program:
        bound.call()
    program.run()
    check(case, bound)
    benchmark(program.run)
    if benchmark.stats is not None:
        benchmark.extra_info["bytes_per_second"] = case.num_bytes / benchmark.stats.stats.median
