"""The engine's port, over a child process that the front watches and replaces."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from stoop_worker.engine.request import Aborted, Deliver, Finished, Media, Refused, Request
from stoop_worker.engine_process.child import ENGINE_PROGRAM, Child
from stoop_worker.engine_process.pixels import SharedPixels, bytes_of
from stoop_worker.engine_process.protocol import EngineSettings, Loading, Ready, Report
from stoop_worker.errors import EngineFault, WorkerError
from stoop_worker.figures import Figures

__all__ = ["SupervisedEngine", "Supervision"]

log = structlog.get_logger(__name__)

_STOP_SECONDS = 1.0  # every job has been settled by then
_HANG_SECONDS = {"cpu": 600.0}  # one step may prefill thousands of tokens there, for minutes
_USUAL_HANG_SECONDS = 60.0
_CHECKS = 4  # checks for progress within `hang_seconds`


@dataclass(frozen=True, slots=True)
class Supervision:
    """The front's limits for the engine; durations are in seconds.

    The engine counts as hung after `hang_seconds` without progress while it has work; None picks a time that suits the
    device. A new engine has `restart_seconds` to get ready. After `max_faults` faults in a row, without a finished
    request in between, the front gives up.
    """

    max_faults: int = 4
    hang_seconds: float | None = None
    restart_seconds: float = 600.0


@dataclass(slots=True)
class _Watchdog:
    """Counts checks without progress, not time: a front that was itself suspended must not blame the engine."""

    progress: int = -1
    idle_checks: int = 0

    def sees_hang(self, progress: int, *, busy: bool) -> bool:
        self.idle_checks = self.idle_checks + 1 if busy and progress == self.progress else 0
        self.progress = progress
        return self.idle_checks >= _CHECKS


@dataclass(slots=True)
class SupervisedEngine:
    """`EnginePort` over one child after another; call it only from the event loop.

    `deliver` takes the outputs. `on_engine_lost` takes the ids of the requests that were in a child when it crashed or
    hung. A request submitted while a child is being replaced waits for the next one. `hang_seconds` is the longest time
    without progress. Images whose pixels are in `shared_pixels` are passed on without a copy.
    `loading` has the newest child's progress, once it has read any weights.
    """

    settings: EngineSettings
    deliver: Deliver
    on_engine_lost: Callable[[Sequence[str]], None]
    supervision: Supervision = field(default_factory=Supervision)
    program: Sequence[str] = ENGINE_PROGRAM
    shared_pixels: SharedPixels = field(default_factory=SharedPixels)
    faults: int = 0
    hang_seconds: float = _USUAL_HANG_SECONDS
    figures: Figures = field(default_factory=dict)
    loading: Loading | None = None
    _progress: int = field(default=0, init=False)
    _alive: bool = field(default=True, init=False)
    _stopping: bool = field(default=False, init=False)
    _child: Child | None = field(default=None, init=False)  # the child that is ready
    _newest: Child | None = field(default=None, init=False)
    # the child's requests, each with the media whose shared memory must not change
    _in_flight: dict[str, tuple[Media, ...]] = field(default_factory=dict, init=False)
    _backlog: dict[str, Request] = field(default_factory=dict, init=False)
    _ready: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def progress(self) -> int:
        """A counter that grows with the child's progress, and while a new child still has time to get ready."""
        return self._progress

    @property
    def alive(self) -> bool:
        """True if the engine takes requests, now or in the next child."""
        return self._alive

    @property
    def running(self) -> asyncio.Event:
        """Set while a child is ready."""
        return self._ready

    def submit(self, request: Request) -> None:
        """Hand a request over; raises `EngineFault` if no child will ever take it, ValueError for an id in flight."""
        if not self._alive:
            raise EngineFault("the engine has ended: start another worker")
        if request.id in self._in_flight or request.id in self._backlog:
            raise ValueError(f"request {request.id} is in flight already")
        if self._child is None:
            self._backlog[request.id] = request
        else:
            self._in_flight[request.id] = self._in_shared_file(request)
            self._child.submit(request)

    def abort(self, request_id: str) -> None:
        """End a request within one step; does nothing if it has ended."""
        if self._backlog.pop(request_id, None):
            self.deliver([Aborted(request_id)])
        elif self._child is not None and request_id in self._in_flight:
            self._child.abort(request_id)

    async def start(self) -> Ready:
        """Start the first child and wait without limit; raises `ConfigError`, `CheckpointError` or `EngineFault`."""
        child, ready = await self._launch()
        usual = _HANG_SECONDS.get(ready.device, _USUAL_HANG_SECONDS)
        self.hang_seconds = self.supervision.hang_seconds or usual
        self._begin(child)
        return ready

    async def run(self) -> None:
        """Watch the child and replace it, until `stop`; raises `EngineFault` after too many faults."""
        try:
            while self._child is not None:
                how = await self._watch(self._child)  # held in no variable: its outbox keeps the pixels it did not take
                if self._stopping:
                    return
                self._child = None
                self._ready.clear()
                self._report_lost(how)
                self._begin(await self._replace(how))
        finally:
            self._alive = False

    async def stop(self) -> None:
        """End the child; unfinished requests are lost."""
        self._stopping, self._alive = True, False
        if self._newest is not None:
            self._newest.stop()
            if self._child is None:
                self._newest.kill()  # it is not listening yet
            await self._newest.end(grace=_STOP_SECONDS)
        self.shared_pixels.close()

    def _in_shared_file(self, request: Request) -> tuple[Media, ...]:
        """Return the request's media whose pixels lie in the shared file; others stay as they were sent."""
        return tuple(media for media in request.media if self.shared_pixels.start_of(bytes_of(media)) is not None)

    async def _launch(self) -> tuple[Child, Ready]:
        self.loading = None
        child = self._newest = await Child.start(self.program, self.settings, self.shared_pixels)
        ready = await child.ready(self._on_loading)
        log.info("engine ready", pid=child.process.pid, model=ready.model, digest=ready.digest)
        return child, ready

    def _on_loading(self, loading: Loading) -> None:
        self.loading = loading

    def _begin(self, child: Child) -> None:
        self._child = child
        backlog, self._backlog = self._backlog, {}
        for request in backlog.values():
            self.submit(request)
        self._ready.set()

    async def _watch(self, child: Child) -> str:
        """Read a child's reports until it ends or hangs; return how it ended."""
        reading = asyncio.create_task(self._read(child))
        watchdog, pause = _Watchdog(), self.hang_seconds / _CHECKS
        try:
            while not reading.done():
                await asyncio.wait({reading}, timeout=pause)
                await asyncio.to_thread(self.shared_pixels.trim)
                if not reading.done() and watchdog.sees_hang(self._progress, busy=bool(self._in_flight)):
                    child.kill()
                    await asyncio.wait({reading}, timeout=pause)
                    await child.end()
                    return f"no progress for {self.hang_seconds:g} s"
            reading.result()
            return await child.end()
        finally:
            reading.cancel()

    async def _read(self, child: Child) -> None:
        progress = 0
        async for report in child.reports():
            self._progress += report.progress != progress
            progress = report.progress
            self._take(report)

    def _take(self, report: Report) -> None:
        if report.figures is not None:
            self.figures = report.figures
        for output in report.outputs:
            if isinstance(output, Finished | Refused | Aborted):
                self._in_flight.pop(output.id, None)
            if isinstance(output, Finished):
                self.faults = 0
        if report.outputs:
            self.deliver(report.outputs)

    def _report_lost(self, how: str) -> None:
        lost = sorted(self._in_flight)
        self._in_flight.clear()
        log.error("the engine has ended while it ran jobs", how=how, jobs=len(lost))
        self.on_engine_lost(lost)

    async def _replace(self, how: str) -> Child:
        """Start children until one is ready; `how` describes the end of the last one."""
        while True:
            self.faults += 1
            if self.faults >= self.supervision.max_faults:
                raise EngineFault(f"{self.faults} faults of the engine in a row, the last one: {how}")
            log.warning("starting another engine", faults=self.faults)
            try:
                return await self._launch_in_time()
            except WorkerError as error:
                how = str(error)
                log.error("the engine could not be started", error=how)

    async def _launch_in_time(self) -> Child:
        launching = asyncio.create_task(self._launch())
        left, pause = self.supervision.restart_seconds, min(1.0, self.hang_seconds / _CHECKS)
        try:
            while left > 0:
                await asyncio.wait({launching}, timeout=pause)
                if launching.done():
                    return launching.result()[0]
                left -= pause
                self._progress += 1  # until then the waiting jobs stay with this worker
        finally:
            launching.cancel()
            await asyncio.gather(launching, return_exceptions=True)
        assert self._newest is not None
        self._newest.kill()
        await self._newest.end()
        raise EngineFault(f"the engine was not ready within {self.supervision.restart_seconds:g} s")
