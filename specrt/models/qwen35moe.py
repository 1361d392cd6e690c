"""The ``qwen35moe`` architecture: ``qwen35`` with experts in place of the dense feed-forward."""

from __future__ import annotations

from dataclasses import dataclass

from specrt.errors import FormatError
from specrt.experts import Experts
from specrt.gguf.reader import GGUFFile
from specrt.models.blocks import FeedForwardWeights, Forward
from specrt.models.loader import MAX_EXPERTS, Dims, Loader, positive
from specrt.models.qwen35 import Qwen35
from specrt.ops import Activation, Acts, Array, Weight


@dataclass(frozen=True, slots=True)
class MixtureShape:
    """The experts of every layer.

    Args:
        num_experts: E.
        num_used: k, to which a row goes.
        hidden: F of each.
        shared_hidden: F of the one that all rows go to.
    """

    num_experts: int
    num_used: int
    hidden: int
    shared_hidden: int

    @classmethod
    def read(cls, gguf: GGUFFile, dims: Dims) -> MixtureShape:
        """The keys ``<architecture>.expert_*``; widths may follow from ``feed_forward_length``.

        Raises:
            MismatchError: one is missing.
            FormatError: a value is impossible.
        """
        arch, dense = gguf.architecture, dims.ffn_width[0]
        num_experts = positive(gguf, f"{arch}.expert_count", most=MAX_EXPERTS)
        num_used = positive(gguf, f"{arch}.expert_used_count", most=num_experts)
        shared = positive(gguf, f"{arch}.expert_shared_feed_forward_length", default=dense or None)
        if dense % num_used and f"{arch}.expert_feed_forward_length" not in gguf.metadata:
            raise FormatError(
                f"{gguf.path}: {arch}.feed_forward_length = {dense} is no multiple of "
                f"expert_used_count = {num_used}; expected one, or expert_feed_forward_length"
            )
        hidden = positive(
            gguf, f"{arch}.expert_feed_forward_length", default=dense // num_used or None
        )
        return cls(num_experts, num_used, hidden, shared)


@dataclass(frozen=True, slots=True)
class Mixture:
    """Experts, of which a router chooses for each row, and one that all rows go to."""

    router: Weight
    pool: Experts
    shared_gate: Weight
    shared: FeedForwardWeights

    @classmethod
    def load(cls, loader: Loader, shape: MixtureShape, width: int, layer: int) -> Mixture:
        """Claim ``blk.<layer>.ffn_*``; one ``ffn_gate_up_exps`` may stand for gate and up."""
        prefix, count, hidden = f"blk.{layer}.ffn", shape.num_experts, shape.hidden
        if loader.has(f"{prefix}_gate_up_exps.weight"):
            name = f"{prefix}_gate_up_exps.weight"
            gate, up = loader.experts(name, count, (hidden, hidden), width)
        else:
            gate, up = (
                loader.experts(f"{prefix}_{side}_exps.weight", count, (hidden,), width)[0]
                for side in ("gate", "up")
            )
        (down,) = loader.experts(f"{prefix}_down_exps.weight", count, (width,), hidden)
        return cls(
            router=loader.weight(f"{prefix}_gate_inp.weight", count, width, role="int8x2"),
            pool=Experts(gate, up, down, shape.num_used),
            shared_gate=loader.row(f"{prefix}_gate_inp_shexp.weight", width, role="int8x2"),
            shared=FeedForwardWeights.named(
                loader, f"{prefix}_{{}}_shexp.weight", width, shape.shared_hidden
            ),
        )

    @property
    def weights(self) -> tuple[Weight, ...]:
        """All matrices."""
        return self.router, self.shared_gate, *self.pool.weights, *self.shared.weights

    @property
    def experts(self) -> tuple[Experts]:
        """Those that the router chooses from."""
        return (self.pool,)

    def feed(
        self, f: Forward, rows: Acts, activation: Activation, out: Array, add: Array | None = None
    ) -> None:
        """Record ``sum_e w_e expert_e(h) + sigmoid(g h) shared(h) (+ add)`` of prepared rows h."""
        routed = f.work.routed(f.num_rows)
        shared = f.work.out(2, f.num_rows, f.x.shape[1])
        logits = f.work.out(3, f.num_rows, self.router.shape[0])
        share = f.work.out(4, f.num_rows, 1)
        f.ops.linear([(self.router, logits), (self.shared_gate, share)], rows)
        f.ops.route(logits, out=routed)
        self.shared.feed(f, rows, activation, shared)
        f.ops.moe(
            rows, self.pool, routed,
            activation=activation, out=out, add=add, shared=shared, shared_gate=share,
        )  # fmt: skip


class Qwen35Moe(Qwen35):
    """Pre-norm blocks of a mixer and a mixture of SwiGLU experts.

    Source: the model's own definition, as llama.cpp runs it.
    """

    takes_experts = True

    def feed_forward(self, loader: Loader, dims: Dims, layer: int) -> Mixture:
        """Claim ``blk.<layer>.ffn_*``."""
        return Mixture.load(loader, MixtureShape.read(loader.gguf, dims), dims.width, layer)
