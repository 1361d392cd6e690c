"""The figures as Markdown tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from specrt.bench.compilers import Compiler
from specrt.bench.kernels import Module, all_modules, noted_launches
from specrt.kernels.program import Launch
from tools.gpu_budget.cards import CARDS, LIMITS, Card
from tools.gpu_budget.code import Code, Key, compiled, expected, key_of, slots_per_byte, stages
from tools.gpu_budget.files import PUBLISHED_DRAFTER, PUBLISHED_TARGET, PaperFile
from tools.gpu_budget.published import ACCEPTED, Accepted
from tools.gpu_budget.steps import State, Step
from tools.gpu_budget.traffic import cost_of, summed

GAP_US: Final = 1.25
"""What a kernel that waits for the one before it costs beside its own bytes: an assumption."""
DEFINES: Final = ((), ("WEIGHT_TYPE Q4_K",), ("KV_TYPE F16",))
"""What modules that are not launched are compiled for."""

Codes = Mapping[int, Mapping[Key, Code]]
"""By architecture."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """One of Markdown; the first column is text, the others stand to the right."""
    ruler = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ruler, *rows])


def cards_table() -> str:
    """What the cards are."""
    head = ("card", "SMs", "GHz", "GB/s", "GB", "int8 TOPS", "dp4a TOPS", "issue, 10^9/s")
    return table(
        head,
        [
            (
                card.name,
                str(card.sms),
                f"{card.gigahertz:.2f}",
                f"{card.bandwidth:,.0f}",
                f"{card.memory:.0f}",
                f"{card.tensor_tops:.0f}",
                f"{card.dot_tops:.0f}",
                f"{card.issue_rate:.0f}",
            )
            for card in CARDS
        ],
    )


def sources(pairs: Iterable[tuple[str, str]]) -> str:
    """A list of what stands where, without repetitions."""
    return "\n".join(f"* {name}: {source}." for name, source in dict.fromkeys(pairs))


def files_table(target: PaperFile, drafter: PaperFile) -> str:
    """How large the files are."""
    own = [t.nbytes for name, t in target.tensors.items() if ".nextn." in name or _is_last(name)]
    embedding = target.tensors["token_embd.weight"].nbytes
    rows = [
        ("target without NextN", target.num_bytes - sum(own), gigabytes(PUBLISHED_TARGET)),
        ("its embedding, of which a step reads rows", embedding, ""),
        ("its head", target.tensors["output.weight"].nbytes, ""),
        ("NextN layer", sum(own), ""),
        ("DFlash2 drafter", drafter.num_bytes, gigabytes(PUBLISHED_DRAFTER)),
    ]
    return table(
        ("file", "GB by the rule", "GB as published"),
        [(name, gigabytes(size), published) for name, size, published in rows],
    )


def _is_last(name: str) -> bool:
    return name.startswith("blk.64.")


def states_table(states: Sequence[State]) -> str:
    """What a sequence holds."""
    return table(
        ("state of a sequence", "MB"), [(one.name, f"{one.num_bytes / 1e6:.1f}") for one in states]
    )


def steps_table(steps: Sequence[Step], cached: int) -> str:
    """Bytes, operations, launches and floors."""
    cards = [f"{card.name}, ms" for card in CARDS]
    head = ("step", "weights, GB", "other, GB", "int8 10^9", "float 10^9", "kernels", *cards)
    rows = []
    for step in steps:
        total = summed([cost_of(one, cached) for one in step.launches])
        rows.append(
            (
                step.name,
                gigabytes(total.weights),
                gigabytes(total.others),
                f"{total.products / 1e9:.0f}",
                f"{total.floats / 1e9:.1f}",
                _kernels(step),
                *(f"{floor_ms(step, card, cached=cached):.2f}" for card in CARDS),
            )
        )
    return table(head, rows)


def _kernels(step: Step) -> str:
    graphs = f" in {step.graphs} graphs" if step.graphs > 1 else ""
    return f"{len(step.launches)}{graphs}"


def floor_ms(step: Step, card: Card, *, cached: int) -> float:
    """The sum of all launches' floors."""
    return sum(cost_of(one, cached).floor_us(card) for one in step.launches) / 1e3


Times = Callable[[Step, Card], float]
"""Milliseconds of a step on a card."""


def speedups_table(steps: Mapping[str, Step], time: Times) -> str:
    """What published acceptance lengths make of such times."""
    rows = []
    for one in ACCEPTED:
        ratios = [
            one.tokens
            * time(steps["plain"], card)
            / sum(time(s, card) for s in round_of(one, steps))
            for card in CARDS
        ]
        name = f"{one.drafter}, {one.num_draft} drafts: {one.text}"
        rows.append((name, f"{one.tokens:.2f}", *(f"{ratio:.2f}" for ratio in ratios)))
    return table(("published", "tokens a verify", *(f"{card.name}, x" for card in CARDS)), rows)


def round_of(one: Accepted, steps: Mapping[str, Step]) -> tuple[Step, Step]:
    """The verify and the draft of a round."""
    return steps[f"verify T = {one.num_draft + 1}"], steps[f"{one.drafter} draft {one.num_draft}"]


def kernels_ms(step: Step, card: Card, *, cached: int, codes: Codes) -> float:
    """With what issuing and launching add to the floors."""
    return expected(step.launches, cached, codes[card.architecture], card, GAP_US).total


def gaps_table(steps: Mapping[str, Step], cached: int, codes: Codes) -> str:
    """Floors beside what the compiled kernels and their number make of them."""

    def told(step: Step, card: Card) -> str:
        one = expected(step.launches, cached, codes[card.architecture], card, GAP_US)
        parts = (one.floor, one.issue, one.uneven, one.gaps)
        added = " + ".join(f"{part:.2f}" for part in parts)
        return f"{added} = {one.total:.2f} ({one.total / one.floor:.2f})"

    rows = [(step.name, *(told(step, card) for card in CARDS)) for step in steps.values()]
    return table(("step", *(f"{card.name}, ms" for card in CARDS)), rows)


def path_table(steps: Mapping[str, Step], codes: Codes) -> str:
    """The code of the kernels that are launched."""
    launches: dict[Key, Launch] = {}
    counts = Counter(key_of(launch) for launch in steps["plain"].launches)
    for step in steps.values():
        for launch in step.launches:
            key = key_of(launch)
            known = launches.setdefault(key, launch)
            if launch.shared_bytes > known.shared_bytes:
                launches[key] = launch
    rows = [
        (
            *_row(key, launch.block, launch.shared_bytes, codes),
            str(stages(launch) or ""),
            str(counts[key] or ""),
        )
        for key, launch in sorted(launches.items(), key=lambda item: name_of(item[0]))
    ]
    return table((*CODE_HEAD, "stages", "in a plain step"), rows)


def others_table(steps: Iterable[Step], codes: Codes) -> str:
    """The code of all other kernels, with threads and shared memory as verify-kernels has them."""
    path = {key_of(launch) for step in steps for launch in step.launches}
    seen = noted_launches()
    rows = []
    for key in sorted((key for key in codes[max(codes)] if key not in path), key=name_of):
        launch = seen.get(key)
        threads, shared = (launch.block, launch.shared_bytes) if launch else (0, 0)
        rows.append(_row(key, threads, shared, codes))
    return table(CODE_HEAD, rows)


CODE_HEAD = (
    "kernel",
    "registers",
    "shared",
    "blocks x warps",
    "16-byte loads",
    "other loads",
    "IMMA",
    "dp4a",
    "instructions",
    "slots a byte",
)
"""Where three numbers stand they are of sm_86, sm_89 and sm_90; loads and counts are of sm_90."""


def _row(key: Key, threads: int, shared_bytes: int, codes: Codes) -> tuple[str, ...]:
    """An entry's; one number where all architectures have the same."""
    found = {a: codes[a][key] for a in LIMITS}
    newest = found[max(found)].instructions
    blocks = ""
    if threads:
        each = [one.blocks_per_sm(a, threads, shared_bytes) for a, one in found.items()]
        blocks = f"{_alike(list(map(str, each)))} x {-(-threads // 32)}"
    slots = [slots_per_byte(key, one) for one in found.values()]
    wide = newest.loads.get(128, 0)
    return (
        name_of(key),
        _alike([str(one.usage.registers) for one in found.values()]),
        str(shared_bytes or ""),
        blocks,
        str(wide or ""),
        str(sum(newest.loads.values()) - wide or ""),
        str(newest.matrix_products or ""),
        str(newest.dot_products or ""),
        str(newest.count),
        _alike([f"{one:.2f}" if one else "" for one in slots]),
    )


def _alike(texts: list[str]) -> str:
    return texts[0] if len(set(texts)) == 1 else "/".join(texts)


def name_of(key: Key) -> str:
    module, entry = key
    return f"{entry} {module.type}".rstrip()


def gigabytes(size: int) -> str:
    """10^9 bytes."""
    return f"{size / 1e9:.3f}"


def all_codes(compiler: Compiler, disassembler: str, modules: Sequence[Module]) -> Codes:
    """Of every architecture of the cards."""
    return {a: compiled(compiler, disassembler, modules, a) for a in LIMITS}


def modules_of(steps: Iterable[Step]) -> Iterator[Module]:
    """Those that are launched, and every other of the types that the files have."""
    launched = {key_of(launch)[0] for step in steps for launch in step.launches}
    yield from sorted(launched, key=lambda module: module.name)
    for module in all_modules():
        if module.defines in DEFINES and module not in launched:
            yield module
