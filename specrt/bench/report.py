"""Tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from specrt.bench.e2e import Row
from specrt.bench.timing import Spread, geometric_mean, peak_memory


def heading(console: Console, machine: dict[str, Any], model: dict[str, Any] | None) -> None:
    """What the figures depend on, in a line for the model and one for the machine."""
    lines = []
    if model is not None:
        where = " ".join(filter(None, (model["device"], model["level"])))
        lines.append(
            f"{model['file']} ({model['architecture']}, {_mib(model['bytes'])}) on {where}, "
            f"{model['threads']} threads, KV {model['kv_type']}, context {model['context']}"
        )
    versions = ", ".join(f"{name} {machine[name]}" for name in ("python", "numpy", "specrt"))
    lines.append(f"{machine['cpu']}, {machine['cores']} cores; {versions}")
    for line in lines:
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


def table(title: str, left: Sequence[str], right: Sequence[str]) -> Table:
    """An empty table; columns of numbers stand on the right."""
    new = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for label in left:
        new.add_column(label, no_wrap=True)
    for label in right:
        new.add_column(label, justify="right")
    return new


def e2e_tables(rows: Sequence[Row]) -> Iterable[Table]:
    """Speed and acceptance by prompt, then milliseconds by phase."""
    numbers = ("tokens", "plain", "spec", "ratio", "(range)", "accepted", "length", "first ms")
    speed = table("tokens per second", ("prompt",), numbers)
    for row in rows:
        mark = " *" if row.degenerate else ""
        speed.add_row(
            row.name + mark,
            str(row.tokens),
            f"{row.plain_tps.median:.1f}",
            f"{row.spec_tps.median:.1f}",
            *_ratio(row.ratio),
            f"{100 * row.acceptance_rate:.0f} %",
            f"{row.acceptance_length:.2f}",
            f"{row.spec_ttft:.0f}",
        )
    if len(rows) > 1:
        speed.add_section()
        mean = geometric_mean([row.ratio.median for row in rows])
        speed.add_row("geometric mean", "", "", "", f"[bold]{mean:.2f}x[/]", "", "", "", "")
    yield speed
    phases = table(
        "milliseconds of a step by phase",
        ("prompt",),
        ("plain", "(spec)", "verify", "draft", "accept", "commit", "prefill"),
    )
    for row in rows:
        ms = row.spec_ms
        phases.add_row(
            row.name,
            f"{row.plain_ms['plain']:.2f}",
            f"{ms['plain']:.2f}" if ms["plain"] else "-",
            f"{ms['verify']:.2f}" if ms["verify"] else "-",
            *(f"{ms[phase]:.3f}" for phase in ("draft", "accept", "commit")),
            f"{ms['prefill']:.0f}",
        )
    yield phases


def _ratio(ratio: Spread) -> tuple[str, str]:
    style = "green" if ratio.median >= 1.02 else "yellow" if ratio.median < 0.98 else "default"
    return f"[{style}]{ratio.median:.2f}x[/]", f"{ratio.least:.2f}-{ratio.most:.2f}"


def e2e_footer(rows: Sequence[Row]) -> str:
    """What is true of all rows."""
    drafters = ", ".join(sorted({row.speculator or "none" for row in rows}))
    lines = [f"ids equal in every run; drafter: {drafters}; peak memory {_mib(peak_memory())}"]
    lines += sorted({reason for row in rows for reason in row.declined})
    if any(row.degenerate for row in rows):
        lines.append("* degenerate: the last 64 tokens are one cycle")
    return "\n".join(lines)


def _mib(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"


def write_json(path: str, report: dict[str, Any]) -> None:
    """Write the whole report."""
    Path(path).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
