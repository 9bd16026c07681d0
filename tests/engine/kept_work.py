"""Work that is kept and called again, in place of CUDA graphs, and the attention of such prefills on a CPU."""

from collections.abc import Callable, Hashable

from torch import Tensor

from stoop_worker.engine.graphs import Graphs
from stoop_worker.kernels.paged_attention import PagedLayout, reference

__all__ = ["KeptWork", "attention"]


class KeptWork(Graphs):
    """Runs the captured work again, and counts the runs."""

    def __init__(self) -> None:
        self.kept: dict[Hashable, Callable[[], Tensor]] = {}
        self.replayed: list[Hashable] = []

    def __contains__(self, key: Hashable) -> bool:
        return key in self.kept

    def capture(self, key: Hashable, work: Callable[[], Tensor]) -> None:
        work()
        self.kept[key] = work

    def replay(self, key: Hashable) -> Tensor:
        self.replayed.append(key)
        # on a device its values have been read before it runs again; here a view would change
        return self.kept[key]().clone()


def attention(q_THD: Tensor, pool: Tensor, layout: PagedLayout, *, scale: float | None = None) -> Tensor:
    """Attend as on a GPU: only the kernel, in Triton's interpreter, follows a captured prefill's tensors."""
    scale = q_THD.shape[2] ** -0.5 if scale is None else scale
    if layout.cu_seqlens or q_THD.shape[0] == layout.context_lens_B.shape[0]:
        return reference.paged_attention(q_THD, pool, layout, scale=scale)
    from stoop_worker.kernels.paged_attention.prefill import prefill

    return prefill(q_THD, pool, layout, scale=scale)
