"""What ``verify-kernels`` runs, as data: every op, type and form at small sizes.

Sizes are no multiples of a kernel's tile, K is an odd number of blocks, heads and KV heads differ.
Widths come in fours (16 bytes at a time) and odd.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from specrt.bench.cases import (
    TYPES,
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
from specrt.ops import KVType

ROWS: Final = (1, 3, 17, 65)
"""For each form of ``linear`` one: two rows or fewer, up to 8, to 64, and more."""
WIDTHS: Final = (1300, 333)
PREPARED_WIDTHS: Final = (1312, 96)
OUTPUTS: Final = 37
MIXED: Final = ("Q6_K", "F16", "Q8_0")
"""Types of the further weights of a launch: of other blocks, and of other rows."""
RECURRENT_HEADS: Final = ((1, 1, 16), (2, 6, 40))
KV_TYPES: Final[tuple[KVType, ...]] = ("f32", "f16", "q8_0")


@dataclass(frozen=True, slots=True)
class Check:
    """Cases of one op.

    Args:
        exact: the results are the reference's bits; else they are as near to the oracle's as
            float32 code is.
    """

    op: str
    cases: tuple[Any, ...]
    exact: bool = True


def _width(kind: str) -> int:
    """An odd number of blocks of at most 256; float types need no whole one."""
    return 300 if kind in ("F16", "BF16", "F32") else 3 * 256


CHECKS: Final = (
    Check("accept", (AcceptCase(1, 4), AcceptCase(3, 17))),
    Check(
        "attention",
        tuple(
            AttentionCase(kv_type, *heads, 203, rows, window)
            for kv_type in KV_TYPES
            for heads in ((9, 3, 64), (4, 1, 256))
            for rows, window in ((1, 0), (9, 0), (17, 75))
        )
        + tuple(AttentionCase(kv_type, 9, 3, 64, 203, 9, softcap=2.5) for kv_type in KV_TYPES)
        + tuple(
            AttentionCase(kv_type, 9, 3, 64, 203, rows, 75, ring_pages=3)
            for kv_type in KV_TYPES
            for rows in (1, 17)
        )
        + tuple(
            AttentionCase(kv_type, 9, 3, 64, 203, rows, window, ring_pages=ring_pages, block=True)
            for kv_type in KV_TYPES
            for rows, window, ring_pages in ((9, 0, 0), (17, 75, 3))
        ),
        exact=False,
    ),
    Check(
        "block_conv",
        tuple(
            BlockConvCase(*shape, rows, add)
            for shape in ((1300, 20, 4), (1300, 13, 3), (333, 9, 2), (96, 1, 4))
            for rows, add in ((1, False), (9, True), (17, False))
        )
        + tuple(
            BlockConvCase(*shape, 9, add, prepares=True)
            for shape in ((1312, 16, 4), (96, 8, 3))
            for add in (False, True)
        ),
    ),
    Check(
        "causal_conv",
        tuple(RecurrentCase(*heads, rows) for heads in RECURRENT_HEADS for rows in (1, 9, 128)),
        exact=False,
    ),
    Check("copy", tuple(RowsCase(width, 9) for width in WIDTHS)),
    Check(
        "draft_token",
        tuple(DraftCase(rows, k) for rows in (1, 3, 17) for k in (1, 10, 64)),
        exact=False,
    ),
    Check("embed", tuple(EmbedCase(kind, OUTPUTS, _width(kind), 5) for kind in TYPES)),
    Check(
        "gated_delta",
        tuple(
            RecurrentCase(*heads, rows, pending)
            for heads in RECURRENT_HEADS
            for rows, pending in ((1, 0), (1, 9), (9, 3), (70, 1))
        ),
        exact=False,
    ),
    Check(
        "glu",
        tuple(
            GluCase(kind, width, 7, prepares)
            for kind in ("silu", "gelu_tanh", "sigmoid")
            for widths, prepares in ((WIDTHS, False), (PREPARED_WIDTHS, True))
            for width in widths
        ),
        exact=False,
    ),
    Check(
        "head",
        tuple(
            LinearCase(kind, 149, _width(kind), 3, scale=scale)
            for kind in ("Q8_0", "Q6_K", "F16")
            for scale in (1.0, -0.3)
        ),
    ),
    Check(
        "head",
        (
            LinearCase("Q8_0", OUTPUTS, _width("Q8_0"), 3, softcap=5000.0),
            LinearCase("F16", OUTPUTS, _width("F16"), 3, softcap=30.0),
            LinearCase("F16", OUTPUTS, _width("F16"), 3, scale=3.0, softcap=30.0),
        ),
        exact=False,
    ),
    Check(
        "lattice",
        tuple(LatticeCase(kind, OUTPUTS, _width(kind), 3, 5) for kind in TYPES)
        + tuple(
            LatticeCase(kind, OUTPUTS, width, rows, k)
            for kind, width in (("Q8_0", 1312), ("F16", 333))
            for rows, k in ((1, 16), (2, 33), (7, 1))
        ),
        exact=False,
    ),
    Check(
        "linear",
        tuple(LinearCase(kind, OUTPUTS, _width(kind), rows) for kind in TYPES for rows in ROWS)
        + tuple(
            LinearCase(kind, OUTPUTS, _width(kind), rows, "int8x2")
            for kind in ("Q4_K", "Q8_0")
            for rows in ROWS
        )
        + tuple(
            LinearCase("Q4_K", OUTPUTS, _width("Q4_K"), rows, **more)
            for more in ({"bias": True}, {"add": True}, {"bias": True, "others": MIXED})
            for rows in ROWS
        ),
    ),
    Check(
        "load_rows",
        tuple(
            RingsCase(*shape, rows)
            for shape in ((1, 96), (5, 1312), (16, 42), (8, 36))
            for rows in (1, 9)
        ),
    ),
    Check(
        "markov",
        tuple(MarkovCase(kind, OUTPUTS, _width(kind), 64, 3) for kind in TYPES)
        + tuple(
            case
            for kind, width in (("Q8_0", 96), ("F16", 333))
            for case in (
                MarkovCase(kind, 149, width, 1300, 3, "int8"),
                MarkovCase(kind, 149, width, 333, 3, "int8x2"),
            )
        ),
        exact=False,
    ),
    Check(
        "moe",
        tuple(
            MoeCase(*sizes, rows, role, mixed=rows > 1)
            for rows in (1, 3, 17)
            for role in ("int8", "int8x2", "f32")
            for sizes in (
                ("Q4_K", 5, 2, 256, 512),
                ("Q8_0", 7, 7, 96, 160),
                ("F16", 37, 3, 24, 75),
            )
        )
        + tuple(MoeCase(kind, 3, 2, 256, 256, 3) for kind in TYPES),
        exact=False,
    ),
    Check(
        "mtp_project",
        tuple(MtpCase(kind, OUTPUTS, OUTPUTS, _width(kind), 5) for kind in TYPES)
        + tuple(
            MtpCase(kind, OUTPUTS, OUTPUTS, width, rows)
            for rows in (1, 17)
            for kind, width in (("Q8_0", 1312), ("F16", 333))
        ),
        exact=False,
    ),
    Check(
        "quantize",
        tuple(
            QuantizeCase(width, 7, role) for width in PREPARED_WIDTHS for role in ("int8", "int8x2")
        ),
    ),
    Check(
        "rms_norm",
        tuple(
            NormCase(width, 7, add, prepares)
            for add in (False, True)
            for widths, prepares in ((WIDTHS, False), (PREPARED_WIDTHS, True))
            for width in widths
        ),
        exact=False,
    ),
    Check(
        "rope_kv",
        tuple(
            case
            for kv_type in KV_TYPES
            for case in (
                RopeCase(kv_type, 9, 3, 64, 203, 9),
                RopeCase(kv_type, 9, 3, 64, 203, 9, pairing="interleaved"),
                RopeCase(kv_type, 9, 3, 64, 203, 17, ring_pages=3),  # from its last page to page 0
            )
        ),
    ),
    Check(
        "rope_kv",
        tuple(
            RopeCase("f32", *heads, 203, 9, True, turns=turns)
            for heads in ((9, 3, 64), (5, 1, 80))
            for turns in (True, False)
        ),
        exact=False,
    ),
    Check(
        "route",
        tuple(
            RouteCase(width, num_used, rows)
            for width, num_used in ((7, 7), (37, 3), (300, 10))
            for rows in (1, 9)
        ),
        exact=False,
    ),
    Check("scale", tuple(RowsCase(width, 9) for width in WIDTHS)),
    Check("select", tuple(RowsCase(width, 9) for width in WIDTHS)),
    Check("store_rows", tuple(RowsCase(width, 9) for width in WIDTHS)),
    Check("top_k", tuple(TopKCase(width, 5, k) for width in WIDTHS for k in (1, 10, 64))),
)
