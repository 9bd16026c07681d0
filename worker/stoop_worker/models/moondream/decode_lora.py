"""The corrections of LoRA adapters in a merged decode step, where each row reads its own adapter's columns alone.

B rows, C model dim, N columns of the first product, M columns of the second product's input, S parts of a sum, R rank.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass, replace

from torch import Tensor

from stoop_worker.kernels.low_rank import Groups, Term, correct, correction, group_rows, thin_values
from stoop_worker.kernels.moe import ExpertAdapter
from stoop_worker.models.moondream.lora import Adapter, BlockAdapters

__all__ = ["NO_ADAPTERS", "RowAdapters", "Thin"]

Thin = Mapping[str, Tensor]
"""The thin values of layers, each (S, B, R), by the layer's name."""


@dataclass(frozen=True, slots=True)
class RowAdapters:
    """All adapters' corrections by block, the number of each row's adapter, and the ranks of plain layers and experts.

    Number 0 means no adapter. Without numbers no row has one. Linear layers are corrected for `grouped` rows. What is
    called `plainly` launches its first kernel plainly; see `kernels.early`.
    """

    blocks: Several[BlockAdapters] = ()
    numbers_B: Tensor | None = None
    ranks: tuple[int, int] = (0, 0)
    groups: Groups | None = None

    def grouped(self, like: Tensor) -> "RowAdapters":
        """Group the rows by adapter if any linear layer has corrections; the rows' values are such as `like`."""
        adapter = next((each for block in self.blocks for each in block.linears.values()), None)
        if self.numbers_B is None or adapter is None:
            return self
        return replace(self, groups=group_rows(self.numbers_B, len(adapter.a_KI) // self.ranks[0], like=like))

    def corrects(self, layer: int) -> bool:
        """Return whether a linear layer of this block has corrections."""
        return self.groups is not None and bool(self.blocks[layer].linears)

    def first_thin(self, layer: int, normed_BC: Tensor, *, plainly: bool) -> Thin:
        """Return the thin values of all layers that read the norm."""
        readers = self._those(layer, ("qkv", "fc1", "proj"))  # proj reads it too: adapters were trained this way
        if self.groups is None or not readers:
            return {}
        a_KIs = [each.a_KI for each in readers.values()]
        found = thin_values(normed_BC, a_KIs, self.groups, self.ranks[0], plainly=plainly)
        return dict(zip(readers, found, strict=True))

    def correct_first(self, layer: int, made_BN: Tensor, width: int, thin: Thin, *, plainly: bool) -> None:
        """Correct qkv and the MLP's inner values in place; `width` is C."""
        writers, starts = self._those(layer, ("qkv", "fc1")), {"qkv": 0, "fc1": 3 * width}
        terms = [Term(thin[name], writer.b_KO, starts[name]) for name, writer in writers.items()]
        if self.groups is not None and terms:
            correct(made_BN, terms, self.groups, plainly=plainly)

    def second(self, layer: int, joined_BM: Tensor, width: int, thin: Thin, *, plainly: bool) -> Tensor | None:
        """Return the corrections of the sum of attention and MLP, (B, C) in float32; `width` is C."""
        writers, terms = self._those(layer, ("proj", "fc2")), []
        if self.groups is None or not writers:
            return None
        if "proj" in writers:
            terms.append(Term(thin["proj"], writers["proj"].b_KO))
        if "fc2" in writers:
            a_KIs = [writers["fc2"].a_KI]
            (found,) = thin_values(joined_BM[:, width:], a_KIs, self.groups, self.ranks[0], plainly=plainly)
            terms.append(Term(found, writers["fc2"].b_KO))
        return correction(terms, self.groups, plainly=plainly and "fc2" not in writers)

    def of_experts(self, layer: int) -> ExpertAdapter | None:
        """Return the corrections of the rows' experts, if there are any."""
        experts = self.blocks[layer].experts if self.numbers_B is not None else None
        return experts and replace(experts, numbers_T=self.numbers_B)

    def _those(self, layer: int, names: tuple[str, ...]) -> dict[str, Adapter]:
        linears = self.blocks[layer].linears if self.groups is not None else {}
        return {name: linears[name] for name in names if name in linears}


NO_ADAPTERS = RowAdapters()
"""A batch without adapters."""
