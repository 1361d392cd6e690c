"""From a device's name to its op set."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

from specrt.errors import OptionError, UnsupportedError
from specrt.host import HostOps
from specrt.ops import DeviceName, Ops, cuda_problem
from specrt.reference import ReferenceOps

MOST_MEBIBYTES = 2**20
"""Of CUDA graphs."""


def make_ops(
    device: str,
    threads: int | None = None,
    graph_mebibytes: int | None = None,
    verbose: bool = False,
) -> Ops:
    """The op set of a device.

    Args:
        device: a ``DeviceName``; "auto" is "cuda" where it is usable, else "cpu".
        threads: of the CPU; None: as many as the process may use.
        graph_mebibytes: the most memory of CUDA graphs; None for the default.
        verbose: say on stderr which kernels are compiled.

    Raises:
        OptionError: no such device, number of threads or budget.
        UnsupportedError: CUDA is asked for and cannot be used, and why.
    """
    if threads is not None and threads < 1:
        raise OptionError(f"threads = {threads}: expected an integer >= 1")
    if graph_mebibytes is not None and not _is_budget(graph_mebibytes):
        raise OptionError(
            f"graph_budget = {graph_mebibytes!r}: expected MiB from 0 to {MOST_MEBIBYTES}"
        )
    if device not in get_args(DeviceName):
        raise OptionError(f"device = {device!r}: expected one of {', '.join(get_args(DeviceName))}")
    if device == "auto":
        device = best_device()
    if device == "reference":
        return ReferenceOps()
    if device == "cpu":
        return HostOps(threads)
    from specrt.kernels import KernelOps  # who computes on the CPU need not wait for these

    if device == "emulator":
        from specrt.kernels.emulator import Emulator

        return KernelOps(Emulator(verbose=verbose))
    from specrt.kernels.cuda import CudaDevice
    from specrt.kernels.graphs import GRAPH_BYTES

    graph_bytes = GRAPH_BYTES if graph_mebibytes is None else graph_mebibytes << 20
    return KernelOps(CudaDevice(verbose, graph_bytes))


def best_device() -> str:
    """ "cuda" where it is usable, else "cpu"; where CuPy is there for nothing, stderr hears why."""
    if find_spec("cupy") is None:
        return "cpu"
    problem = cuda_problem()
    if problem is None:
        return "cuda"
    _say_once(f"computing on the CPU: {problem}")
    return "cpu"


def available_memory(device: str) -> int | None:
    """Bytes that the device can give, without swapping; None where nothing says how many."""
    if device == "cuda":
        from specrt.kernels._module import find_cuda

        try:
            cupy = find_cuda()
        except UnsupportedError:
            return None
        kept = cupy.get_default_memory_pool().free_bytes()  # for arrays to come
        return int(cupy.cuda.runtime.memGetInfo()[0] + kept)
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _is_budget(value: object) -> bool:
    return type(value) is int and 0 <= value <= MOST_MEBIBYTES


@cache
def _say_once(message: str) -> None:
    print(message, file=sys.stderr)
