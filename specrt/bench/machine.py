"""What a figure depends on besides the code; nothing that tells whose machine it is."""

from __future__ import annotations

import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from specrt.host import HostOps
from specrt.host.machine import available_levels, choose_threads
from specrt.llm import LLM


def describe_machine() -> dict[str, Any]:
    """Processor, instruction set, threads and versions."""
    return {
        "cpu": _cpu_model(),
        "cores": choose_threads(None),
        "architecture": platform.machine(),
        "system": platform.system(),
        "instruction_sets": list(available_levels()),
        "memory_mib": _memory_mib(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "specrt": _own_version(),
    }


def describe_model(llm: LLM) -> dict[str, Any]:
    """The loaded model, and how it was loaded."""
    ops = llm.target.ops
    host = ops if isinstance(ops, HostOps) else None
    return {
        "file": Path(llm.path).name,
        "architecture": llm.gguf.architecture,
        "bytes": llm.plan.weights,
        "device": ops.device,
        "level": host.level if host else None,
        "threads": host.threads if host else 1,
        "kv_type": llm.target.kv_type,
        "context": llm.context,
    }


def _cpu_model() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or "unknown"


def _memory_mib() -> int | None:
    try:
        found = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    except OSError:
        found = None
    return int(found[1]) // 1024 if found else None


def _own_version() -> str:
    try:
        return version("specrt")
    except PackageNotFoundError:
        return "not installed"
