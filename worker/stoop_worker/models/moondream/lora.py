"""LoRA adapters: small corrections of linear layers, different ones for the rows of a batch.

All adapters lie side by side, by number; number 0 is empty and means no adapter. A row's correction is
((x A^T) masked to the row's adapter) B^T, with no further scale. So one pair of products serves a mixed batch, and
nothing depends on a value that is on the device.

T rows, S numbers of adapters, R rank of the largest one, K = S R, I in, O out, C model dim.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass, replace

from torch import Tensor
from torch.nn import functional

from stoop_worker.kernels.moe import ExpertAdapter
from stoop_worker.models.blocks.layers import MLP, Rows, linear
from stoop_worker.models.moondream.moe import feed_forward
from stoop_worker.models.moondream.weights import MoE

__all__ = ["NO_CORRECTIONS", "Adapter", "BlockAdapters", "Corrections"]


@dataclass(frozen=True, slots=True)
class Adapter:
    """The corrections of one linear layer: `a_KI` reads its input, `b_KO` writes to its output."""

    a_KI: Tensor
    b_KO: Tensor


@dataclass(frozen=True, slots=True)
class BlockAdapters:
    """The corrections of one text block, by layer: qkv, proj, fc1 and fc2. `experts` has those of a mixture."""

    linears: Mapping[str, Adapter]
    experts: ExpertAdapter | None = None


@dataclass(frozen=True, slots=True)
class Corrections:
    """The corrections of all blocks for the rows of a batch.

    The mask has 1 in the columns of each row's adapter; the kernels of experts compare `numbers_T` themselves.
    """

    blocks: Several[BlockAdapters] = ()
    mask_TK: Tensor | None = None
    numbers_T: Tensor | None = None

    @classmethod
    def of(
        cls, blocks: Several[BlockAdapters], numbers_T: Tensor, *, count: int, rank: int, like: Tensor
    ) -> "Corrections":
        """Take each row's number; `rank` is that of plain layers."""
        chosen_TS = functional.one_hot(numbers_T, count).to(like.dtype)
        chosen_TS[:, 0] = 0
        return cls(blocks, chosen_TS.repeat_interleave(rank, dim=1), numbers_T)

    def at(self, rows_R: Tensor) -> "Corrections":
        """Return the corrections of some of the rows."""
        if self.mask_TK is None or self.numbers_T is None:
            return self
        return replace(self, mask_TK=self.mask_TK[rows_R], numbers_T=self.numbers_T[rows_R])

    def correct(self, layer: int, name: str, out_TO: Tensor, x_TI: Rows) -> Tensor:
        """Return a linear layer's output with its correction."""
        adapter = self.blocks[layer].linears.get(name) if self.blocks else None
        if adapter is None:
            return out_TO
        assert isinstance(x_TI, Tensor) and self.mask_TK is not None, "adapters take plain rows"
        return out_TO + functional.linear(x_TI, adapter.a_KI) * self.mask_TK @ adapter.b_KO

    def feed_forward(self, layer: int, x_TC: Rows, weights: MLP | MoE) -> Tensor:
        """Return the output of a block's MLP or mixture with its corrections; an MLP's first layer is corrected before
        its GELU.
        """
        if not self.blocks:
            return feed_forward(x_TC, weights)
        block = self.blocks[layer]
        if isinstance(weights, MLP):
            u_TF = self.correct(layer, "fc1", linear(x_TC, weights.fc1), x_TC)
            inner_TF = functional.gelu(u_TF, approximate="tanh")
            return self.correct(layer, "fc2", linear(inner_TF, weights.fc2), inner_TF)
        adapter = block.experts
        return feed_forward(x_TC, weights, adapter and replace(adapter, numbers_T=self.numbers_T))


NO_CORRECTIONS = Corrections()
"""A batch without adapters."""
