"""What the op and host benchmarks run, as data; ``op_cases.py`` says how a case becomes a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from specrt.ops import Activation, KVType, Role, RopePairing
from specrt.state.recurrent import RecurrentShape


@dataclass(frozen=True, slots=True)
class LinearCase:
    """A matrix [N, K] times rows; also the head with its argmax.

    Args:
        bias: every matrix has one.
        add: rows are added last.
        others: types of further matrices in the same launch, each 5 rows longer.
        scale: of the head's logits.
        softcap: of them; 0 for none.
    """

    type: str
    outputs: int
    width: int
    rows: int
    role: Role = "int8"
    bias: bool = False
    add: bool = False
    others: tuple[str, ...] = ()
    scale: float = 1.0
    softcap: float = 0.0


@dataclass(frozen=True, slots=True)
class RowsCase:
    """An op over rows of one width: copy, scale, select, store_rows."""

    width: int
    rows: int


@dataclass(frozen=True, slots=True)
class NormCase:
    """Rows with a weight, and with what is added last; or only prepared for a matrix."""

    width: int
    rows: int
    add: bool = False
    prepares: bool = False


@dataclass(frozen=True, slots=True)
class QuantizeCase:
    """Rows in the forms that a role reads."""

    width: int
    rows: int
    role: Role = "int8"


@dataclass(frozen=True, slots=True)
class EmbedCase:
    """Rows of a matrix [N, K] by id."""

    type: str
    vocab: int
    width: int
    rows: int


@dataclass(frozen=True, slots=True)
class GluCase:
    """Gated rows, or only prepared for a matrix."""

    activation: Activation
    width: int
    rows: int
    prepares: bool = False


@dataclass(frozen=True, slots=True)
class RecurrentCase:
    """Rows of a recurrent layer, whose state lacks so many rows before them."""

    key_heads: int
    value_heads: int
    dim: int
    rows: int
    pending: int = 0

    @property
    def shape(self) -> RecurrentShape:
        """Keys and values of the same size, and four rows of a convolution."""
        return RecurrentShape(self.key_heads, self.value_heads, self.dim, self.dim, 4)


@dataclass(frozen=True, slots=True)
class RouteCase:
    """Rows of logits, one for each expert, that go to so many experts."""

    width: int
    num_used: int
    rows: int


@dataclass(frozen=True, slots=True)
class MoeCase:
    """Rows that go to so many experts, chosen evenly; all matrices are of one type.

    Args:
        hidden: F, between the matrices.
        mixed: with a shared expert's rows, and others that are added.
    """

    type: str
    num_experts: int
    num_used: int
    hidden: int
    width: int
    rows: int
    role: Role = "int8"
    mixed: bool = False


@dataclass(frozen=True, slots=True)
class AttentionCase:
    """Rows at the end of a sequence, which see all of it or a window's positions.

    Args:
        softcap: of the scores; 0 for none.
        ring_pages: of a layer that keeps what a window sees; 0 for one that keeps all.
        block: the rows see each other, as a block drafter's do, its heads have sinks, and the
            first positions have no keys.
    """

    kv_type: KVType
    heads: int
    kv_heads: int
    head_dim: int
    length: int
    rows: int
    window: int = 0
    softcap: float = 0.0
    ring_pages: int = 0
    block: bool = False


@dataclass(frozen=True, slots=True)
class RopeCase:
    """Rows that are rotated, heads normed before or not, and stored at the end of a sequence.

    Args:
        turns: False for a rotary table of no pairs.
    """

    kv_type: KVType
    heads: int
    kv_heads: int
    head_dim: int
    length: int
    rows: int
    normed: bool = False
    pairing: RopePairing = "neox"
    ring_pages: int = 0
    turns: bool = True


@dataclass(frozen=True, slots=True)
class AcceptCase:
    """Windows of equal length."""

    windows: int
    rows: int


@dataclass(frozen=True, slots=True)
class TopKCase:
    """The k largest logits of each row."""

    width: int
    rows: int
    k: int = 10


@dataclass(frozen=True, slots=True)
class MtpCase:
    """Tokens beside hidden rows, by a projection [N, 2 width] of the embedding's type."""

    type: str
    vocab: int
    outputs: int
    width: int
    rows: int


@dataclass(frozen=True, slots=True)
class RingsCase:
    """Rows of so many rings of one width, prepared for a matrix."""

    rings: int
    width: int
    rows: int


@dataclass(frozen=True, slots=True)
class BlockConvCase:
    """Rows of one block, convolved by taps of groups of channels, or only prepared for a matrix."""

    width: int
    group: int
    taps: int
    rows: int
    add: bool = False
    prepares: bool = False


@dataclass(frozen=True, slots=True)
class DraftCase:
    """The k likeliest ids of each of so many sequences."""

    rows: int
    k: int = 10


@dataclass(frozen=True, slots=True)
class LatticeCase:
    """A block of so many rows of k candidates, with codebooks [V, R]."""

    type: str
    vocab: int
    width: int
    rows: int
    k: int


@dataclass(frozen=True, slots=True)
class MarkovCase:
    """A block of so many rows of logits [Vd] and hidden rows, with codebooks of width R."""

    type: str
    outputs: int
    width: int
    hidden: int
    rows: int
    role: Role = "int8x2"


ROWS: Final = (1, 4, 9, 17)
TYPES: Final = (
    "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL",
    "IQ4_XS", "IQ3_XXS", "IQ3_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "MXFP4", "F16", "BF16", "F32",
)  # fmt: skip
# Larger than a core's caches, as the weights of a model are.
MATRIX: Final = (8192, 2048)

LINEAR: Final = tuple(LinearCase(kind, *MATRIX, rows) for kind in TYPES for rows in ROWS) + tuple(
    LinearCase(kind, *MATRIX, rows, "int8x2") for kind in ("Q4_K", "Q8_0") for rows in ROWS
)
HEAD: Final = (
    *(LinearCase("Q8_0", 49_152, 576, rows) for rows in ROWS),  # SmolLM2 135M
    *(LinearCase("Q6_K", 262_144, 768, rows) for rows in (1, 9)),  # as large as Gemma 3's
)
EMBED: Final = tuple(EmbedCase(kind, 49_152, 768, 9) for kind in ("Q8_0", "Q4_K", "F16"))
RMS_NORM: Final = (
    *(NormCase(width, rows) for width in (576, 4096) for rows in ROWS),
    *(NormCase(4096, rows, prepares=True) for rows in ROWS),
)
QUANTIZE: Final = tuple(QuantizeCase(width, rows) for width in (576, 4096) for rows in ROWS)
COPY: Final = (RowsCase(576, 9), RowsCase(4096, 9))
SELECT: Final = COPY
STORE_ROWS: Final = COPY
SCALE: Final = COPY
LOAD_ROWS: Final = tuple(RingsCase(5, width, rows) for width in (256, 4096) for rows in ROWS)
BLOCK_CONV: Final = tuple(
    BlockConvCase(width, 16, 4, rows, add=not prepares, prepares=prepares)
    for width in (256, 4096)
    for rows in ROWS
    for prepares in (False, True)
)
MTP_PROJECT: Final = tuple(MtpCase("Q8_0", 4096, 1024, 1024, rows) for rows in ROWS)
DRAFT_TOKEN: Final = tuple(DraftCase(rows, k) for rows in (1, 4) for k in (1, 10))
LATTICE: Final = tuple(
    LatticeCase(kind, 49_152, *sizes)
    for kind in ("Q8_0", "F16")
    for sizes in ((32, 7, 8), (256, 15, 16))
)
MARKOV: Final = (
    MarkovCase("Q8_0", 4096, 32, 256, 8),
    MarkovCase("Q8_0", 49_152, 256, 1024, 8),
    MarkovCase("F16", 4096, 32, 256, 8),
)
ACCEPT: Final = tuple(AcceptCase(windows, rows) for windows in (1, 4) for rows in (4, 17, 65))
TOP_K: Final = tuple(TopKCase(width, rows) for width in (49_152, 151_936) for rows in (1, 4))
GLU: Final = (
    *(GluCase(kind, 1536, rows) for kind in ("silu", "gelu_tanh") for rows in ROWS),
    *(GluCase("silu", 1536, rows, prepares=True) for rows in ROWS),
)
CAUSAL_CONV: Final = tuple(
    RecurrentCase(*heads, rows) for heads in ((2, 4, 64), (16, 16, 128)) for rows in ROWS
)
GATED_DELTA: Final = tuple(
    RecurrentCase(*heads, rows, pending)
    for heads in ((2, 4, 64), (16, 16, 128))
    for rows in ROWS
    for pending in (0, 4)
)
ROUTE: Final = tuple(RouteCase(width, 8, rows) for width in (64, 256) for rows in ROWS)
MOE: Final = tuple(
    MoeCase(kind, 16, 4, 512, 1024, rows, mixed=True) for kind in ("Q4_K", "Q8_0") for rows in ROWS
)
ATTENTION: Final = tuple(
    AttentionCase(kv_type, *heads, length, rows)
    for heads in ((9, 3, 64), (4, 1, 256))
    for kv_type in ("f16", "f32", "q8_0")
    for length in (512, 4096)
    for rows in ROWS
)
ROPE_KV: Final = tuple(
    RopeCase(kv_type, 9, 3, 64, 512, rows) for kv_type in ("f16", "f32", "q8_0") for rows in ROWS
)

HISTORIES: Final = (1_000, 100_000, 1_000_000)
TEXTS: Final = ("random", "zipf", "copies")
VOCABULARIES: Final = (49_152, 262_144)
DRAWS: Final = {
    "greedy": {"temperature": 0.0},
    "temperature": {},
    "top_k_top_p": {"top_k": 40, "top_p": 0.9},
    "top_p": {"top_p": 0.9},
    "min_p": {"min_p": 0.05},
    "penalties": {"repetition_penalty": 1.1, "frequency_penalty": 0.1},
}
"""Sampling parameters, over a temperature of 0.8 and seed 1."""


def text(kind: str, length: int, history: int, seed: int = 1) -> np.ndarray:
    """Ids that hardly repeat an n-gram, that do as words do, or that copy earlier passages.

    Args:
        length: ids in all.
        history: ids at the beginning that passages are copied from, so that what is drafted does
            not depend on how much else there is.

    Returns:
        [length] int32, ids below 49152.
    """
    rng = np.random.default_rng(seed)
    if kind == "random":
        return rng.integers(0, 49152, length).astype(np.int32)
    if kind == "zipf":
        return np.minimum(rng.zipf(1.3, length), 49151).astype(np.int32)
    ids = rng.integers(0, 49152, length + 128).astype(np.int32)
    end = 64
    while end < length:
        size = int(rng.integers(5, 40))
        start = int(rng.integers(0, min(end, history) - size))
        ids[end : end + size] = ids[start : start + size]
        end += size + int(rng.integers(1, 12))
    return ids[:length]
