"""One layer of a ``dflash`` drafter: attention over injected rows and the block, feed-forward."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from specrt.drafters.dflash_keys import DFlashKeys
from specrt.errors import FormatError
from specrt.models.blocks import AttentionWeights, FeedForwardWeights, Forward
from specrt.models.loader import Dims, Loader
from specrt.ops import Acts, Array, Rope, Weight
from specrt.state.recurrent import MAX_CONV

VARYING, BETWEEN = 4, 0
"""Of the workspace's outs: coefficients of the convolution, which stay to the end of an attention
or a feed-forward, and what a convolution leaves to a norm."""

NUM_OUTS = 5


@dataclass(frozen=True, slots=True)
class BlockConv:
    """The convolutions on both sides of an attention or a feed-forward.

    Args:
        base: [2, K, D].
        varying: [2 K G, D], from a normed row to what is added to the base for it.
    """

    base: Array
    varying: Weight

    @classmethod
    def load(cls, loader: Loader, dims: Dims, name: str) -> BlockConv | None:
        """Claim ``<name>_conv_base`` and ``_conv_proj``, None if there are none.

        Raises:
            FormatError: the kernel or the groups are impossible.
        """
        gguf = loader.gguf
        if not loader.has(f"{name}_conv_base"):
            return None
        kernel = gguf.get("dflash.conv_kernel_size", int)
        group = gguf.get("dflash.conv_group_size", int)
        if not 1 <= kernel <= MAX_CONV or group < 1 or dims.width % group:
            raise FormatError(
                f"{gguf.path}: dflash.conv_kernel_size = {kernel} and dflash.conv_group_size = "
                f"{group}, expected 1 to {MAX_CONV}, and a divisor of {dims.width}"
            )
        rows = 2 * kernel * (dims.width // group)
        return cls(
            base=loader.array(f"{name}_conv_base", (2, kernel, dims.width)),
            varying=loader.weight(f"{name}_conv_proj.weight", rows, dims.width, role="int8x2"),
        )


@dataclass(frozen=True, slots=True)
class Branch:
    """What stands around attention or feed-forward f: ``x += norm(conv(scale f(conv(rms(x)))))``.

    Args:
        norm: [D], before it.
        conv: on both sides, if the file has them.
        scale: of its output.
        post_norm: [D], of what is added, or None.
    """

    norm: Array
    conv: BlockConv | None
    scale: float
    post_norm: Array | None

    @property
    def adds_directly(self) -> bool:
        """Whether what it adds is the output as it is."""
        return self.conv is None and self.scale == 1 and self.post_norm is None

    def enter(self, f: Forward, eps: float) -> Acts:
        """Record the rows that it reads."""
        if self.conv is None:
            return f.normed(self.norm, eps)
        acts = f.work.acts(*f.x.shape)
        f.ops.rms_norm(f.x, self.norm, eps, out=f.h, acts=acts)
        varying = self._varying(f, self.conv)
        f.ops.linear([(self.conv.varying, varying)], acts)
        f.ops.block_conv(f.h, varying, self.conv.base, f.step, side=0, out=None, acts=acts)
        return acts

    def leave(self, f: Forward, eps: float) -> None:
        """Record what is added of its output, which is in ``f.h``."""
        rows = f.h
        if self.conv is None and self.post_norm is None:
            f.ops.scale(rows, self.scale, out=f.x, add=f.x)
            return
        if self.scale != 1:
            f.ops.scale(rows, self.scale, out=rows)
        if self.conv is not None:
            varying, normed = self._varying(f, self.conv), self.post_norm is not None
            out = f.work.out(BETWEEN, *f.x.shape) if normed else f.x
            f.ops.block_conv(
                rows, varying, self.conv.base, f.step, side=1, out=out, add=None if normed else f.x
            )
            rows = out
        if self.post_norm is not None:
            f.ops.rms_norm(rows, self.post_norm, eps, out=f.x, add=f.x)

    def _varying(self, f: Forward, conv: BlockConv) -> Array:
        return f.work.out(VARYING, f.num_rows, conv.varying.shape[0])


@dataclass(frozen=True, slots=True)
class DFlashLayer:
    """Attention and feed-forward, each in its branch.

    Args:
        layer: its number.
        attention: the projections; the values may be the keys' projection.
        sinks: [H], or None.
        around_attention, around_ffn: what stands around them.
        ffn: the feed-forward.
        output_scale: multiplies the residual at the end.
        keys: what the file says.
    """

    layer: int
    attention: AttentionWeights
    sinks: Array | None
    around_attention: Branch
    ffn: FeedForwardWeights
    around_ffn: Branch
    output_scale: float
    keys: DFlashKeys

    @classmethod
    def load(cls, loader: Loader, dims: Dims, keys: DFlashKeys, layer: int) -> DFlashLayer:
        """Claim ``blk.<layer>.*``."""
        prefix = f"blk.{layer}"

        def norm(name: str) -> Array | None:
            found = loader.has(f"{prefix}.{name}.weight")
            return loader.vector(f"{prefix}.{name}.weight", dims.width) if found else None

        def branch(name: str, post_norm: str, scale: float) -> Branch:
            return Branch(
                loader.vector(f"{prefix}.{name}_norm.weight", dims.width),
                BlockConv.load(loader, dims, f"{prefix}.{name}"),
                scale,
                norm(post_norm),
            )

        sinks, scale = f"{prefix}.attn_sinks.weight", f"{prefix}.layer_output_scale.weight"
        has_sinks, has_scale = loader.has(sinks), loader.has(scale)
        return cls(
            layer=layer,
            attention=AttentionWeights.load(loader, dims, layer, head_norms=True, may_share=True),
            sinks=loader.vector(sinks, dims.heads[layer]) if has_sinks else None,
            around_attention=branch("attn", "post_attention_norm", keys.value_scale),
            ffn=FeedForwardWeights.load(loader, dims, layer),
            around_ffn=branch("ffn", "post_ffw_norm", 1.0),
            output_scale=_finite(loader, scale) if has_scale else 1.0,
            keys=keys,
        )

    @property
    def weights(self) -> tuple[Weight, ...]:
        """All matrices."""
        convs = [branch.conv for branch in (self.around_attention, self.around_ffn)]
        varying = [conv.varying for conv in convs if conv is not None]
        return *self.attention.weights, *self.ffn.weights, *varying

    def inject(self, f: Forward, rows: Acts, dims: Dims, rope: Rope) -> None:
        """Record keys and values of encoded rows; no norm and no convolution comes before them."""
        self.attention.remember(f, rows, self.layer, dims, rope)

    def record(self, f: Forward, dims: Dims, rope: Rope, num_rows: int) -> None:
        """Record the layer over the block's residual ``f.x``.

        Args:
            num_rows: the first rows that anybody reads behind it; of the others keys and values.
        """
        keys, around = self.keys, self.around_attention
        attended = self.attention.attend(
            f, around.enter(f, dims.eps), self.layer, dims, rope,
            scale=keys.attention_scale, window=keys.windows[self.layer],
            ahead=not keys.causal, sinks=self.sinks, num_queries=num_rows,
        )  # fmt: skip
        f = replace(f, x=f.x[:num_rows], h=f.h[:num_rows])
        if around.adds_directly:
            f.work.linear(attended, [(self.attention.output, f.x)], add=f.x)
        else:
            f.work.linear(attended, [(self.attention.output, f.h)])
            around.leave(f, dims.eps)
        around = self.around_ffn
        rows = around.enter(f, dims.eps)
        if around.adds_directly:
            self.ffn.feed(f, rows, keys.activation, f.x, add=f.x)
        else:
            self.ffn.feed(f, rows, keys.activation, f.h)
            around.leave(f, dims.eps)
        if self.output_scale != 1:
            f.ops.scale(f.x, self.output_scale, out=f.x)


def _finite(loader: Loader, name: str) -> float:
    """A tensor of one number.

    Raises:
        FormatError: it is none.
    """
    (value,) = loader.values(name, (1,)).tolist()
    if not math.isfinite(value):
        raise FormatError(f"{loader.gguf.path}: {name} = {value}, expected a number")
    return float(value)
