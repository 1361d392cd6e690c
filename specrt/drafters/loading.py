"""From a drafter's file to a head that is bound to its target."""

from __future__ import annotations

import numpy as np

from specrt.drafters.dflash_head import DFlashHead, load_dflash
from specrt.drafters.nextn_head import NextNHead, load_nextn, own_nextn
from specrt.errors import OptionError
from specrt.gguf.reader import GGUFFile
from specrt.models.blocks import Trunk
from specrt.models.decoder import Decoder
from specrt.state.messages import Declined


def load_head(
    gguf: GGUFFile, trunk: Trunk, target: Decoder, ids: np.ndarray | None = None
) -> NextNHead | DFlashHead | Declined | None:
    """The head of a file, as ``general.architecture`` says; None if it promises none.

    Args:
        gguf: the target's own file, in which a bad head is a reason to decline, or another that
            was checked against it.
        trunk: the target's.
        target: whose slots the head follows.
        ids: the only ones that it guesses, ascending; None for all.

    Raises:
        SpecrtError: an attached file cannot be bound, and why.
    """
    if gguf.architecture == "dflash":
        if ids is not None:
            raise OptionError(
                f"{gguf.path}: draft ids are for NextN heads; a block drafter brings its own "
                "reduced head if it has one: leave --draft-ids out"
            )
        return load_dflash(gguf, trunk, target)
    load = own_nextn if gguf is trunk.gguf else load_nextn
    return load(gguf, trunk, target, ids)
