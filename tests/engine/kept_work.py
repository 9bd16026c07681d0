"""Work that is kept and called again, in place of CUDA graphs."""

from collections.abc import Callable, Hashable

from torch import Tensor

from stoop_worker.engine.graphs import Graphs

__all__ = ["KeptWork"]


class KeptWork(Graphs):
    """Runs again what was captured; counts how often."""

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
        # on a device what follows it has read its values before it runs again; here a view would change
        return self.kept[key]().clone()
