"""The corrections of LoRA adapters in a merged decode step, where each row reads its own adapter's columns alone.

B rows, C model dim, N columns of the first product, M columns of the second product's input, S parts of a sum, R rank.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass, replace

from torch import Tensor

from stoop_worker.kernels.low_rank import Term, correct, thin_values
from stoop_worker.kernels.moe import ExpertAdapter
from stoop_worker.models.moondream.lora import Adapter, BlockAdapters

__all__ = ["NO_ADAPTERS", "RowAdapters", "Thin"]

Thin = Mapping[str, Tensor]
"""The thin values of layers, each (S, B, R), by the layer's name."""


@dataclass(frozen=True, slots=True)
class RowAdapters:
    """All adapters' corrections by block, the number of each row's adapter, and the ranks of plain layers and experts.

    Number 0 means no adapter. Without numbers no row has one.
    """

    blocks: Several[BlockAdapters] = ()
    numbers_B: Tensor | None = None
    ranks: tuple[int, int] = (0, 0)

    def correct_first(self, layer: int, made_BN: Tensor, normed_BC: Tensor) -> Thin:
        """Correct qkv and the MLP's inner values in place; return the thin values of all layers that read the norm."""
        readers = self._those(layer, ("qkv", "fc1", "proj"))  # proj reads it too: adapters were trained this way
        if self.numbers_B is None or not readers:
            return {}
        found = thin_values(normed_BC, [each.a_KI for each in readers.values()], self.numbers_B, self.ranks[0])
        thin = dict(zip(readers, found, strict=True))
        starts = {"qkv": 0, "fc1": 3 * normed_BC.shape[1]}
        terms = [Term(thin[name], readers[name].b_KO, start) for name, start in starts.items() if name in readers]
        if terms:
            correct(made_BN, terms, self.numbers_B)
        return thin

    def correct_second(self, layer: int, parts_SBC: Tensor, joined_BM: Tensor, thin: Thin) -> None:
        """Correct the sum of attention and MLP in its first part, in place."""
        writers = self._those(layer, ("proj", "fc2"))
        if self.numbers_B is None or not writers:
            return
        terms = []
        if "proj" in writers:
            terms.append(Term(thin["proj"], writers["proj"].b_KO))
        if "fc2" in writers:
            inner_BF = joined_BM[:, parts_SBC.shape[2] :]
            (found,) = thin_values(inner_BF, [writers["fc2"].a_KI], self.numbers_B, self.ranks[0])
            terms.append(Term(found, writers["fc2"].b_KO))
        correct(parts_SBC[0], terms, self.numbers_B)

    def of_experts(self, layer: int) -> ExpertAdapter | None:
        """Return the corrections of the rows' experts, if there are any."""
        experts = self.blocks[layer].experts if self.numbers_B is not None else None
        return experts and replace(experts, numbers_T=self.numbers_B)

    def _those(self, layer: int, names: tuple[str, ...]) -> dict[str, Adapter]:
        linears = self.blocks[layer].linears if self.numbers_B is not None else {}
        return {name: linears[name] for name in names if name in linears}


NO_ADAPTERS = RowAdapters()
"""A batch without adapters."""
