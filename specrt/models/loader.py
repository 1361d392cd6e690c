"""What every architecture reads from its file: checked hyperparameters and claimed tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from specrt.acts import FLOAT_TYPES
from specrt.errors import FormatError, MismatchError, UnsupportedError
from specrt.gguf.reader import GGUFFile, Tensor
from specrt.ops import Array, Ops, Rope, RopePairing, Weight

MAX_CONTEXT = 2**24
MAX_HEADS = 2**12
MAX_HEAD_DIM = 2**14
ROPE_CHUNK = 2**12
"""Positions whose float64 angles are held at once."""


class Loader:
    """Hands out a file's tensors, each with its expected shape, and knows which were left over.

    What the op set has copied is forgotten in the file's memory, so that both are there for the
    time of one tensor only; rows that are read in the file come back when they are read.

    Args:
        gguf: the open file.
        ops: makes weights and vectors on the device.
        report: hears the bytes of each tensor that is on the device.
    """

    def __init__(
        self, gguf: GGUFFile, ops: Ops, report: Callable[[int], None] | None = None
    ) -> None:
        self.gguf = gguf
        self.ops = ops
        self._report = report
        self._claimed: set[str] = set()

    def has(self, name: str) -> bool:
        """True if the file holds that tensor."""
        return name in self.gguf.tensors

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Claim a tensor; see ``GGUFFile.require_tensor`` for what it raises."""
        tensor = self.gguf.require_tensor(name, shape)
        self._claimed.add(name)
        return tensor

    def weight(self, name: str, rows: int, columns: int, *, bias: str | None = None) -> Weight:
        """Claim the matrix ``name`` [rows, columns], and ``bias`` [rows] if the file has it.

        Raises:
            UnsupportedError: its type is no matrix type.
        """
        tensor = self._matrix(self.tensor(name, (rows, columns)))
        added = self.vector(bias, rows) if bias is not None and self.has(bias) else None
        weight = self.ops.weight(tensor, "int8", added)
        self._copied(tensor)
        return weight

    def table(self, name: str, rows: int, columns: int) -> Weight:
        """Claim a matrix [rows, columns] of which only ``embed`` reads rows.

        Raises:
            UnsupportedError: its type is no matrix type.
        """
        tensor = self._matrix(self.tensor(name, (rows, columns)))
        table = self.ops.table(tensor)
        self._copied(tensor)
        return table

    def slices(self, name: str, heights: tuple[int, ...], columns: int) -> list[Weight]:
        """Claim one matrix that stands for several, one below the other."""
        tensor = self._matrix(self.tensor(name, (sum(heights), columns)))
        ends = np.cumsum(heights).tolist()
        weights = [
            self.ops.weight(tensor.rows(end - height, end))
            for end, height in zip(ends, heights, strict=True)
        ]
        self._copied(tensor)
        return weights

    def vector(self, name: str, size: int) -> Array:
        """Claim a vector [size] as float32.

        Raises:
            UnsupportedError: it is quantised.
        """
        tensor = self.tensor(name, (size,))
        if tensor.type.name not in FLOAT_TYPES:
            raise UnsupportedError(
                f"{self.gguf.path}: {name!r} is {tensor.type.name}, expected a vector of "
                f"{', '.join(FLOAT_TYPES)}: convert the model again"
            )
        values = self.ops.vector(tensor)
        self._copied(tensor)
        return values

    def finish(self) -> None:
        """Check that no tensor is left over, since one that is not applied changes the model.

        Raises:
            UnsupportedError: some are.
        """
        left = [name for name in self.gguf.tensors if name not in self._claimed]
        if left:
            shown = ", ".join(map(repr, left[:5])) + (", ..." if len(left) > 5 else "")
            raise UnsupportedError(
                f"{self.gguf.path}: {len(left)} tensors are not part of a plain "
                f"{self.gguf.architecture} model that specrt runs: {shown}"
            )

    def _copied(self, tensor: Tensor) -> None:
        self.gguf.forget(tensor.name)
        if self._report is not None:
            self._report(tensor.nbytes)

    def _matrix(self, tensor: Tensor) -> Tensor:
        if not tensor.type.is_quantized and tensor.type.name not in FLOAT_TYPES:
            raise UnsupportedError(
                f"{self.gguf.path}: {tensor.name!r} is {tensor.type.name}, expected a matrix of "
                f"{', '.join(FLOAT_TYPES)} or a quantised type: convert the model again"
            )
        return tensor


@dataclass(frozen=True, slots=True)
class Dims:
    """The hyperparameters that all architectures share.

    Args:
        num_layers: blocks of the trunk.
        width: D, the residual's.
        heads: H per layer.
        kv_heads: Hkv per layer.
        head_dim: Dh of queries, keys and values.
        ffn_width: of the dense feed-forward per layer.
        eps: of every RMS norm.
        context: that the model was trained for, positions.
        vocab_size: V, rows of the embedding.
    """

    num_layers: int
    width: int
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    head_dim: int
    ffn_width: tuple[int, ...]
    eps: float
    context: int
    vocab_size: int

    @classmethod
    def read(cls, gguf: GGUFFile) -> Dims:
        """Read and check the keys ``<architecture>.*``.

        Raises:
            MismatchError: a required key is missing.
            FormatError: a value is impossible.
            UnsupportedError: the model has experts, or keys and values of different widths.
        """
        arch = gguf.architecture
        num_layers = positive(gguf, f"{arch}.block_count", most=len(gguf.tensors))
        width = positive(gguf, f"{arch}.embedding_length")
        heads = per_layer(gguf, f"{arch}.attention.head_count", num_layers, most=MAX_HEADS)
        kv_heads = per_layer(
            gguf, f"{arch}.attention.head_count_kv", num_layers, default=heads, most=MAX_HEADS
        )
        head_dim = positive(
            gguf, f"{arch}.attention.key_length", default=width // heads[0], most=MAX_HEAD_DIM
        )
        value_dim = positive(gguf, f"{arch}.attention.value_length", default=head_dim)
        if gguf.get(f"{arch}.expert_count", int, 0):
            raise UnsupportedError(
                f"{gguf.path}: {arch} with experts is not run; use a dense model"
            )
        if value_dim != head_dim:
            raise UnsupportedError(
                f"{gguf.path}: {arch}.attention.value_length = {value_dim}, "
                f"expected key_length = {head_dim}"
            )
        if any(h % kv for h, kv in zip(heads, kv_heads, strict=True)):
            raise FormatError(
                f"{gguf.path}: head_count {heads} is no multiple of head_count_kv {kv_heads}"
            )
        eps = gguf.get(f"{arch}.attention.layer_norm_rms_epsilon", float)
        if not (math.isfinite(eps) and eps >= 0):
            raise FormatError(f"{gguf.path}: layer_norm_rms_epsilon = {eps}, expected >= 0")
        embedding = gguf.require_tensor("token_embd.weight")
        return cls(
            num_layers=num_layers,
            width=width,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            ffn_width=per_layer(gguf, f"{arch}.feed_forward_length", num_layers),
            eps=eps,
            context=positive(gguf, f"{arch}.context_length", most=MAX_CONTEXT),
            vocab_size=embedding.shape[0],
        )


def positive(gguf: GGUFFile, key: str, *, default: int | None = None, most: int = 2**31 - 1) -> int:
    """The integer under ``key``, from 1 to ``most``.

    Raises:
        MismatchError: it is missing and has no default.
        FormatError: it is out of that range.
    """
    value = gguf.get(key, int) if default is None else gguf.get(key, int, default)
    if not 1 <= value <= most:
        raise FormatError(f"{gguf.path}: {key} = {value}, expected 1 to {most}")
    return value


def per_layer(
    gguf: GGUFFile,
    key: str,
    num_layers: int,
    *,
    default: tuple[int, ...] | None = None,
    most: int = 2**31 - 1,
) -> tuple[int, ...]:
    """One integer from 1 to ``most`` per layer, from a number or an array under ``key``."""
    if default is not None and key not in gguf.metadata:
        return default
    if not isinstance(gguf.metadata.get(key), np.ndarray):
        return (positive(gguf, key, most=most),) * num_layers
    values = gguf.get(key, np.ndarray)
    integers = len(values) == num_layers and values.dtype.kind in "iu"
    if not integers or values.min() < 1 or values.max() > most:
        raise FormatError(
            f"{gguf.path}: {key} holds {len(values)} {values.dtype} values, expected "
            f"{num_layers} integers from 1 to {most}, one per layer"
        )
    return tuple(values.tolist())


def linear_rope_scale(gguf: GGUFFile) -> float:
    """What positions are multiplied with: 1 / factor under linear scaling, else 1.

    Raises:
        UnsupportedError: the file asks for another kind of scaling.
    """
    arch = gguf.architecture
    kind = gguf.get(f"{arch}.rope.scaling.type", str, "linear")
    if kind not in ("none", "linear"):
        raise UnsupportedError(
            f"{gguf.path}: {arch}.rope.scaling.type = {kind!r}, expected 'none' or 'linear'"
        )
    old = gguf.get(f"{arch}.rope.scale_linear", float, 0.0)
    factor = gguf.get(f"{arch}.rope.scaling.factor", float, old)
    if not (math.isfinite(factor) and factor >= 0):
        raise FormatError(f"{gguf.path}: rope.scaling.factor = {factor}, expected >= 0")
    return 1 / factor if kind == "linear" and factor else 1.0


def whole_head_rope(gguf: GGUFFile, dims: Dims) -> int:
    """The dims that turn, for architectures that turn the whole head.

    Raises:
        UnsupportedError: the file turns fewer.
    """
    key = f"{gguf.architecture}.rope.dimension_count"
    num_rot = gguf.get(key, int, dims.head_dim)
    if num_rot != dims.head_dim:
        raise UnsupportedError(
            f"{gguf.path}: {key} = {num_rot}, expected the head dimension {dims.head_dim}"
        )
    return num_rot


def make_rope(
    ops: Ops,
    *,
    base: float,
    num_rot: int,
    context: int,
    pairing: RopePairing,
    scale: float = 1.0,
    divisors: np.ndarray | None = None,
) -> Rope:
    """The table of ``cos, sin (p scale base^(-2i / num_rot) / divisors[i])`` for all positions p.

    Args:
        base: ``rope.freq_base``.
        num_rot: dims that turn, even.
        context: positions.
        scale: multiplies positions.
        divisors: [num_rot / 2] of ``rope_freqs.weight``.

    Raises:
        MismatchError: the base, the number of dims or a divisor is impossible.
    """
    if num_rot % 2 or not (math.isfinite(base) and base > 0):
        raise MismatchError(
            f"rope: freq_base = {base}, dimension_count = {num_rot}; expected a base > 0 and an "
            "even count: convert the model again"
        )
    with np.errstate(over="ignore"):
        frequency = scale * np.power(float(base), -np.arange(0, num_rot, 2) / num_rot)
    if divisors is not None:
        if not (np.isfinite(divisors).all() and (divisors > 0).all()):
            raise MismatchError(
                f"rope_freqs.weight holds values from {divisors.min()} to {divisors.max()}; "
                "expected finite ones > 0: convert the model again"
            )
        frequency = frequency / divisors.astype(np.float64)
    if not np.isfinite(frequency * context).all():
        raise MismatchError(
            f"rope: freq_base = {base} and scaling {scale} give frequencies up to "
            f"{frequency.max()}; expected finite ones: convert the model again"
        )
    table = ops.buffer((context, num_rot // 2, 2), np.float32)
    angles = np.empty((min(ROPE_CHUNK, context), num_rot // 2))
    turns = np.empty((*angles.shape, 2), np.float32)
    for start in range(0, context, ROPE_CHUNK):
        positions = np.arange(start, min(start + ROPE_CHUNK, context), dtype=np.float64)
        angle, turn = angles[: len(positions)], turns[: len(positions)]
        np.multiply.outer(positions, frequency, out=angle)
        np.cos(angle, out=turn[..., 0], dtype=np.float64, casting="same_kind")
        np.sin(angle, out=turn[..., 1], dtype=np.float64, casting="same_kind")
        ops.assign(table[start : start + len(positions)], turn)
    return Rope(table, pairing)
