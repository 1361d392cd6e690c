"""The instruction sets of this machine, as tape levels."""

from pathlib import Path

_FLAGS = set(Path("/proc/cpuinfo").read_text().split()) if Path("/proc/cpuinfo").exists() else set()
LEVELS = {"portable": 0}
if {"avx2", "fma", "f16c", "bmi2"} <= _FLAGS:
    LEVELS["avx2"] = 1
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"} <= _FLAGS:
        LEVELS["avx512"] = 2
