"""A block drafter whose every row drafts, with a Markov head and a confidence head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tools.train_tiny.drafter import DFlash, DraftConfig, early_first

CONFIDENCE = 0.2
"""Weight of the confidence head's loss."""


@dataclass(frozen=True, slots=True)
class DSparkConfig(DraftConfig):
    """Shapes.

    Args:
        rank: of the Markov head.
    """

    rank: int = 32

    def keys(self) -> dict[str, Any]:
        """The file's shapes, under ``dflash.``."""
        return DraftConfig.keys(self) | {  # a slotted dataclass is made twice: no super()
            "sample_from_anchor": True,
            "has_confidence_head": True,
        }


class DSpark(DFlash):
    """The last token's row drafts too, and each row's logits are moved by the id before.

    logits + markov_w2 markov_w1[previous]; the confidence that the likeliest is right is
    sigmoid(conf_proj [hidden, markov_w1[previous]] + bias).
    """

    config: DSparkConfig
    first: ClassVar[int] = 0

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__(config)
        c = config
        self.markov_w1 = nn.Embedding(c.vocab_size, c.rank)
        self.markov_w2 = nn.Linear(c.rank, c.vocab_size, bias=False)
        self.conf_proj = nn.Linear(c.width + c.rank, 1)
        nn.init.normal_(self.markov_w1.weight, std=0.5)
        nn.init.normal_(self.markov_w2.weight, std=0.02)

    def choices(self, embedding: Tensor, hidden: Tensor, previous: Tensor) -> Tensor:
        """[..., V] logits, moved."""
        moved = self.markov_w2(self.markov_w1(previous)).float()
        return self.unary(embedding, hidden) + moved

    def confidence(self, hidden: Tensor, previous: Tensor) -> Tensor:
        """[...] before the sigmoid; it learns from what it reads, and does not move that."""
        read = torch.cat([hidden, self.markov_w1(previous)], -1).detach()
        return self.conf_proj(read)[..., 0].float()

    def loss(self, embedding: Tensor, hidden: Tensor, previous: Tensor, targets: Tensor) -> Tensor:
        """Of the moved logits, and of the confidence that their likeliest is right."""
        logits = self.choices(embedding, hidden, previous)
        right = (logits.argmax(-1) == targets).float()
        confidence = self.confidence(hidden, previous)
        unsure = F.binary_cross_entropy_with_logits(confidence, right)
        return early_first(logits, targets) + CONFIDENCE * unsure
