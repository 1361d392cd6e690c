"""What is timed on a GPU, as data: the ops of a decode step at the shapes of a 27B model.

Experts are those of a model of 35B, of which a quarter is there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from specrt.bench.cases import (
    AcceptCase,
    AttentionCase,
    BlockConvCase,
    DraftCase,
    EmbedCase,
    GluCase,
    LatticeCase,
    LinearCase,
    MarkovCase,
    MoeCase,
    MtpCase,
    NormCase,
    QuantizeCase,
    RecurrentCase,
    RingsCase,
    RopeCase,
    RouteCase,
    RowsCase,
    TopKCase,
)

WIDTH: Final = 5120
HIDDEN: Final = 17_408
VOCABULARY: Final = 151_936
HEADS: Final = (24, 4, 256)
TYPES: Final = ("Q4_K", "Q6_K", "Q8_0")
ROWS: Final = (1, 2, 4, 8, 16)
FEW: Final = (1, 8)
SHAPES: Final = ((WIDTH, WIDTH), (HIDDEN, WIDTH), (WIDTH, HIDDEN))


def group(case: Any, rows: tuple[int, ...] = FEW) -> tuple[Any, ...]:
    """A case by its number of rows: they read the same data, and are timed in turns."""
    return tuple(replace(case, rows=number) for number in rows)


GROUPS: Final[dict[str, tuple[tuple[Any, ...], ...]]] = {
    "linear": tuple(group(LinearCase(kind, *shape, 1), ROWS) for kind in TYPES for shape in SHAPES),
    "head": tuple(group(LinearCase(kind, VOCABULARY, WIDTH, 1), ROWS) for kind in TYPES),
    "attention": tuple(
        group(AttentionCase(kv_type, *HEADS, length, 1))
        for kv_type in ("f16", "q8_0")
        for length in (1024, 8192)
    ),
    "rms_norm": (
        group(NormCase(WIDTH, 1, add=True)),
        group(NormCase(WIDTH, 1, prepares=True)),
    ),
    "causal_conv": (group(RecurrentCase(16, 48, 128, 1)),),
    "gated_delta": (group(RecurrentCase(16, 48, 128, 1, 4)),),
    "route": (group(RouteCase(256, 8, 1)),),
    "moe": tuple(group(MoeCase(kind, 64, 8, 512, 2048, 1, mixed=True)) for kind in TYPES),
    "glu": (group(GluCase("silu", HIDDEN, 1, prepares=True)),),
    "quantize": (group(QuantizeCase(WIDTH, 1)), group(QuantizeCase(HIDDEN, 1))),
    "rope_kv": (group(RopeCase("f16", *HEADS, 1024, 1)),),
    "embed": (group(EmbedCase("Q4_K", 4096, WIDTH, 1)),),
    "copy": (group(RowsCase(WIDTH, 1)),),
    "select": (group(RowsCase(WIDTH, 1)),),
    "store_rows": (group(RowsCase(WIDTH, 1)),),
    "load_rows": (group(RingsCase(5, WIDTH, 1)),),
    "block_conv": (
        group(BlockConvCase(WIDTH, 16, 4, 1, add=True)),
        group(BlockConvCase(WIDTH, 16, 4, 1, prepares=True)),
    ),
    "scale": (group(RowsCase(WIDTH, 1)),),
    "mtp_project": (group(MtpCase("Q8_0", 4096, WIDTH, WIDTH, 1)),),
    "top_k": (group(TopKCase(VOCABULARY, 1)),),
    "draft_token": (group(DraftCase(1)),),
    "lattice": (group(LatticeCase("Q8_0", 32_768, 256, 1, 16), (1, 8, 15)),),
    "markov": (group(MarkovCase("Q8_0", 32_768, 256, WIDTH, 1)),),
    "accept": (group(AcceptCase(1, 1), (2, 8)),),
}
"""By the op's name."""
