"""What every architecture reads from its file: checked hyperparameters and claimed tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from specrt.acts import FLOAT_TYPES
from specrt.errors import FormatError, MismatchError, UnsupportedError
from specrt.experts import ExpertWeight
from specrt.gguf.reader import GGUFFile, Tensor
from specrt.gguf.strings import StringArray
from specrt.ops import Array, Ops, Role, Rope, RopePairing, Weight
from specrt.reference.quant_blocks import dequantize

MAX_BLOCKS = 2**12
MAX_CONTEXT = 2**24
MAX_HEADS = 2**12
MAX_HEAD_DIM = 2**14
MAX_EXPERTS = 2**14
MAX_SOFTCAP = 1e30
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
        self._hidden: set[str] = set()

    def has(self, name: str) -> bool:
        """True if the file holds that tensor."""
        return name in self.gguf.tensors and name not in self._hidden

    def hide(self, part: str) -> None:
        """Claim tensors whose names have that part, and act as if the file had none."""
        self._hidden.update(name for name in self.gguf.tensors if part in name)
        self._claimed |= self._hidden

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Claim a tensor; see ``GGUFFile.require_tensor`` for what it raises."""
        tensor = self.gguf.require_tensor(name, shape)
        self._claimed.add(name)
        return tensor

    def weight(
        self,
        name: str,
        rows: int,
        columns: int,
        *,
        bias: str | None = None,
        role: Role = "int8",
    ) -> Weight:
        """Claim the matrix ``name`` [rows, columns], and ``bias`` [rows] if the file has it.

        Raises:
            UnsupportedError: its type is no matrix type.
        """
        tensor = self._matrix(self.tensor(name, (rows, columns)))
        added = self.vector(bias, rows) if bias is not None and self.has(bias) else None
        weight = self.ops.weight(tensor, role, added)
        self._copied(tensor)
        return weight

    def rows(self, name: str, chosen: np.ndarray, rows: int, columns: int) -> Weight:
        """Claim a matrix [rows, columns] of which only some rows count, in the order given."""
        tensor = self._matrix(self.tensor(name, (rows, columns)))
        part = replace(tensor, shape=(len(chosen), columns), raw=tensor.raw[chosen])
        weight = self.ops.weight(part)
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

    def interleaved(
        self, name: str, groups: int, heights: tuple[int, ...], columns: int
    ) -> list[Weight]:
        """Claim one matrix that stands for several, whose rows take turns in groups."""
        tensor = self._matrix(self.tensor(name, (groups * sum(heights), columns)))
        raw = tensor.raw.reshape(groups, sum(heights), -1)
        ends = np.cumsum(heights).tolist()
        weights = []
        for end, height in zip(ends, heights, strict=True):
            rows = np.ascontiguousarray(raw[:, end - height : end]).reshape(groups * height, -1)
            part = replace(tensor, shape=(groups * height, columns), raw=rows)
            weights.append(self.ops.weight(part))
        self._copied(tensor)
        return weights

    def row(self, name: str, columns: int, *, role: Role = "int8") -> Weight:
        """Claim a vector [columns] as a matrix of one row.

        Raises:
            UnsupportedError: its type is no matrix type.
        """
        tensor = self._matrix(self.tensor(name, (columns,)))
        matrix = replace(tensor, shape=(1, columns), raw=tensor.raw.reshape(1, -1))
        weight = self.ops.weight(matrix, role)
        self._copied(tensor)
        return weight

    def experts(
        self, name: str, count: int, heights: tuple[int, ...], columns: int
    ) -> list[ExpertWeight]:
        """Claim one tensor [count, sum of heights, columns]: of each expert a matrix for each
        height, one below the other.

        Raises:
            UnsupportedError: its type is no matrix type.
        """
        tensor = self._matrix(self.tensor(name, (count, sum(heights), columns)))
        ends, weights = np.cumsum(heights).tolist(), []
        for end, height in zip(ends, heights, strict=True):
            raw = tensor.raw[:, end - height : end]
            part = replace(tensor, shape=(count, height, columns), raw=raw)
            weights.append(self.ops.expert_weight(part))
        self._copied(tensor)
        return weights

    def leave(self, prefix: str) -> None:
        """Leave all tensors of that prefix to somebody else."""
        self._claimed.update(name for name in self.gguf.tensors if name.startswith(prefix))

    def vector(self, name: str, size: int) -> Array:
        """Claim a vector [size] as float32; see ``array``."""
        return self.array(name, (size,))

    def array(self, name: str, shape: tuple[int, ...]) -> Array:
        """Claim values that are no matrix of ``linear`` as float32.

        Raises:
            UnsupportedError: they are quantised.
        """
        tensor = self.tensor(name, shape)
        if tensor.type.name not in FLOAT_TYPES:
            raise UnsupportedError(
                f"{self.gguf.path}: {name!r} is {tensor.type.name}, expected one of "
                f"{', '.join(FLOAT_TYPES)}: convert the model again"
            )
        values = self.ops.vector(tensor)
        self._copied(tensor)
        return values

    def values(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Claim values of any matrix type, which the host reads as float32.

        Raises:
            UnsupportedError: its type is no matrix type.
        """
        tensor = self._matrix(self.tensor(name, shape))
        raw = tensor.raw.reshape(int(np.prod(shape[:-1])), -1)
        values = dequantize(tensor.type.name, raw).reshape(shape)
        self._copied(tensor)
        return values

    def finish(self, prefix: str = "") -> None:
        """Check that no tensor is left over, since one that is not applied changes the model.

        Args:
            prefix: of the names that count.

        Raises:
            UnsupportedError: some are.
        """
        names = (name for name in self.gguf.tensors if name.startswith(prefix))
        left = [name for name in names if name not in self._claimed]
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
        heads: H per block, of draft heads too.
        kv_heads: Hkv per block.
        head_dim: Dh of queries, keys and values.
        ffn_width: of the dense feed-forward per block, 0 where experts stand for it and the file
            does not say.
        eps: of every RMS norm.
        context: that the model was trained for, positions.
        vocab_size: V, rows of the embedding.
        num_nextn: blocks of draft heads behind the trunk's.
        num_experts: E of each block, 0 for dense ones.
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
    num_nextn: int = 0
    num_experts: int = 0

    @classmethod
    def read(cls, gguf: GGUFFile, vocab_size: int | None = None) -> Dims:
        """Read and check the keys ``<architecture>.*``.

        Args:
            vocab_size: V of a drafter's target; None: the file's own.

        Raises:
            MismatchError: a required key is missing.
            FormatError: a value is impossible.
            UnsupportedError: keys and values are of different widths.
        """
        arch = gguf.architecture
        blocks = positive(gguf, f"{arch}.block_count", most=MAX_BLOCKS)
        num_nextn = gguf.get(f"{arch}.nextn_predict_layers", int, 0)
        if not 0 <= num_nextn < blocks:
            raise FormatError(
                f"{gguf.path}: {arch}.nextn_predict_layers = {num_nextn}, expected 0 to "
                f"{blocks - 1}, less than block_count"
            )
        width = positive(gguf, f"{arch}.embedding_length")
        heads = per_layer(gguf, f"{arch}.attention.head_count", blocks, most=MAX_HEADS)
        kv_heads = per_layer(
            gguf, f"{arch}.attention.head_count_kv", blocks, default=heads, most=MAX_HEADS
        )
        head_dim = positive(
            gguf, f"{arch}.attention.key_length", default=width // heads[0], most=MAX_HEAD_DIM
        )
        value_dim = positive(gguf, f"{arch}.attention.value_length", default=head_dim)
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
        num_experts = gguf.get(f"{arch}.expert_count", int, 0)
        if not 0 <= num_experts <= MAX_EXPERTS:
            raise FormatError(
                f"{gguf.path}: {arch}.expert_count = {num_experts}, expected 0 to {MAX_EXPERTS}"
            )
        no_width = (0,) * blocks if f"{arch}.expert_count" in gguf.metadata else None
        return cls(
            num_layers=blocks - num_nextn,
            width=width,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            ffn_width=per_layer(gguf, f"{arch}.feed_forward_length", blocks, default=no_width),
            eps=eps,
            context=positive(gguf, f"{arch}.context_length", most=MAX_CONTEXT),
            vocab_size=vocab_size or _vocab_size(gguf),
            num_nextn=num_nextn,
            num_experts=num_experts,
        )


def _vocab_size(gguf: GGUFFile) -> int:
    """Rows of the embedding; of a draft head's file without one, the ids of its tokenizer.

    Raises:
        MismatchError: it has neither.
    """
    if "token_embd.weight" in gguf.tensors:
        return gguf.tensors["token_embd.weight"].shape[0]
    return len(gguf.get("tokenizer.ggml.tokens", StringArray))


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


def sliding_windows(
    gguf: GGUFFile, num_layers: int, *, window: int, period: int
) -> tuple[int, ...]:
    """The window of each layer, 0 for those that see all keys.

    ``sliding_window_pattern`` says of each layer whether it slides, or that every n-th does not.

    Args:
        window: of the layers that slide, 0 if none does.
        period: n where the file has no pattern.

    Raises:
        FormatError: the pattern fits no layers.
    """
    key = f"{gguf.architecture}.attention.sliding_window_pattern"
    if isinstance(gguf.metadata.get(key), np.ndarray):
        sliding = gguf.get(key, np.ndarray).astype(bool).tolist()
    else:
        period = positive(gguf, key, default=period)
        sliding = [(layer + 1) % period != 0 for layer in range(num_layers)]
    if len(sliding) != num_layers:
        raise FormatError(f"{gguf.path}: {key} names {len(sliding)} layers, expected {num_layers}")
    return tuple(window if slides else 0 for slides in sliding)


def logit_softcap(gguf: GGUFFile, default: float = 0.0) -> float:
    """``final_logit_softcapping``, 0 for none.

    Args:
        default: where the file has no such key.

    Raises:
        FormatError: it is negative, not finite or too large.
    """
    key = f"{gguf.architecture}.final_logit_softcapping"
    softcap = gguf.get(key, float, default)
    if not 0 <= softcap <= MAX_SOFTCAP:
        raise FormatError(
            f"{gguf.path}: {key} = {softcap}, expected 0 (none) to {MAX_SOFTCAP:.0e}: convert the "
            "model again"
        )
    return softcap


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


def no_rope(ops: Ops, context: int) -> Rope:
    """The table of no pairs at all: every dim passes through."""
    return Rope(ops.buffer((context, 0, 2), np.float32), "interleaved")
