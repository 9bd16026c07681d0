"""An engine without a model, which answers every request at once."""

from collections.abc import Mapping, Sequence

from stoop_worker.engine.request import Aborted, Deliver, Output, Request

__all__ = ["InstantEngine"]


class InstantEngine:
    """An engine without a loop: it answers within `submit`, with what `outputs` returns."""

    fault: Exception | None = None
    figures: Mapping[str, float] = {}

    def __init__(self, deliver: Deliver) -> None:
        self.progress = 0
        self.alive = True
        self._deliver = deliver

    def outputs(self, request: Request) -> Sequence[Output]:
        """Return the whole answer."""
        raise NotImplementedError

    def start(self) -> None:
        """Do nothing; there is no loop."""

    def stop(self) -> None:
        self.alive = False

    def submit(self, request: Request) -> None:
        self.progress += 1
        self._deliver(list(self.outputs(request)))

    def abort(self, request_id: str) -> None:
        self._deliver([Aborted(request_id)])
