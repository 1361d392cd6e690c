"""What this process has mapped, as /proc/self/smaps tells."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

SMAPS = Path("/proc/self/smaps")


@dataclass(slots=True)
class Mapping:
    """Addresses, the file if there is one, resident bytes, and flags as the kernel names them."""

    start: int
    end: int
    path: str
    resident: int = 0
    flags: list[str] = field(default_factory=list)


def mappings() -> list[Mapping]:
    """All of them."""
    found: list[Mapping] = []
    for line in SMAPS.read_text().splitlines():
        if match := re.match(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \d+\s*(.*)", line):
            found.append(Mapping(int(match[1], 16), int(match[2], 16), match[3]))
        elif line.startswith("Rss:"):
            found[-1].resident = int(line.split()[1]) * 1024
        elif line.startswith("VmFlags:"):
            found[-1].flags = line.split()[1:]
    return found


def mapping_at(address: int) -> Mapping | None:
    """The one that holds an address."""
    return next((m for m in mappings() if m.start <= address < m.end), None)


def resident_bytes(path: Path) -> int:
    """Of a file's mappings."""
    return sum(m.resident for m in mappings() if m.path == str(path))
