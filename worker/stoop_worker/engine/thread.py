"""The engine in its own thread, behind the port that the rest of the worker uses."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Condition, Thread
from typing import Any, NamedTuple, get_args

from stoop_worker.engine.batch_engine import BatchEngine
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.grammars.grammars import COMPILERS
from stoop_worker.engine.request import (
    Aborted,
    Caption,
    Deliver,
    Detect,
    Gaze,
    Output,
    Point,
    Query,
    Request,
    Terminal,
)
from stoop_worker.engine.stats import Stats
from stoop_worker.errors import EngineFault
from stoop_worker.figures import Figures

__all__ = ["AnyEngine", "EngineThread"]

AnyEngine = Engine | BatchEngine
"""The engines that a thread can run. Each takes only the prepared requests that it made itself."""

_Message = Any
"""A request, an aborted one, the id of one to abort, the outputs of a late end, or another thread's error."""

_TERMINALS = frozenset(get_args(Terminal))
_SHORT_TEXT = 256  # characters, which take a tenth of a millisecond to prepare
_IDLE_SECONDS = 0.25  # the period of an idle loop, whose `progress` shows that it is alive


class _Unprepared(NamedTuple):
    """A request with a short prompt, and when it was submitted, in seconds on the engine's clock."""

    request: Request
    submitted: float


class EngineThread:
    """Steps the engine while there is work; implements `EnginePort`.

    The submitting thread prepares a long prompt, which then delays no step. The engine's thread prepares a short one
    itself: it has the code and the objects in its core's caches, and any other thread takes twice as long and keeps the
    interpreter from it meanwhile. Requests whose grammars must be compiled wait for threads of their own, so that they
    delay no other request. Sequences whose end takes long are finished by a thread of their own; an abort finds such a
    request ended. The engine's thread calls `deliver`. It calls `on_end` once, after a fault has ended the loop;
    `alive` is then False and `fault` is set. `stop` does not call `on_end`.
    """

    def __init__(self, engine: AnyEngine, deliver: Deliver, on_end: Callable[[], None] | None = None) -> None:
        self._engine = engine  # after the start, other threads read its progress and prepare requests
        self._deliver = deliver
        self._on_end = on_end
        self._thread = Thread(target=self._loop, name="engine", daemon=True)
        self._changed = Condition()  # guards the mailbox, the ids, and the two flags
        self._mailbox: deque[_Message] = deque()
        self._in_flight: set[str] = set()
        self._preparing: set[str] = set()  # those that submitting threads prepare
        self._compiling: dict[str, Future[None]] = {}  # by id: those that are prepared by `_compilers`
        self._compilers = ThreadPoolExecutor(COMPILERS, thread_name_prefix="compiler")
        self._aborted: set[str] = set()  # of those that are being prepared
        self._finisher = ThreadPoolExecutor(1, thread_name_prefix="finisher")
        if isinstance(engine, Engine):
            engine.defer = self._defer
        self._stopping = False
        self._ended = False
        self._checked = False  # True once the pages were checked after the last work; used only by the engine's thread
        # written by the engine's thread, read by any
        self._rounds = 0
        self._fault: BaseException | None = None
        self._stats = engine.stats

    @property
    def progress(self) -> int:
        """Rounds of the loop, including idle ones, plus the engine's progress within them."""
        return self._rounds + self._engine.progress

    @property
    def alive(self) -> bool:
        """True while the loop takes requests."""
        return not self._ended

    @property
    def fault(self) -> BaseException | None:
        """The exception that ended the loop, with its traceback; None while the loop runs or after `stop`."""
        return self._fault

    @property
    def stats(self) -> Stats:
        """The engine's figures as of its last round."""
        return self._stats

    @property
    def figures(self) -> Figures:
        """The same figures by name, for callers that cannot import the engine's types."""
        return self._stats.figures

    def start(self) -> None:
        """Start the loop."""
        self._thread.start()

    def stop(self) -> None:
        """End the loop after its current step, and wait for that; unfinished requests are lost."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()
        self._finisher.shutdown(wait=False, cancel_futures=True)
        self._end()

    def submit(self, request: Request) -> None:
        """Hand a request over; raises `EngineFault` when the loop has ended, ValueError when the id is in flight."""
        with self._changed:
            if self._ended:
                raise EngineFault("the engine has ended: start another")
            if request.id in self._in_flight:
                raise ValueError(f"request {request.id} is in flight already")
            self._in_flight.add(request.id)
            if self._engine.compiles(request):
                self._compiling[request.id] = self._compilers.submit(self._prepare, request)
                return
            if _is_short(request):
                self._send(_Unprepared(request, self._engine.clock()))
                return
            self._preparing.add(request.id)
        self._prepare(request)

    def abort(self, request_id: str) -> None:
        """End a request within one step; does nothing if it has ended."""
        with self._changed:
            compiling = self._compiling.get(request_id)
            if compiling is not None and compiling.cancel():
                del self._compiling[request_id]
                self._send(Aborted(request_id))
            elif compiling is not None or request_id in self._preparing:
                self._aborted.add(request_id)
            elif request_id in self._in_flight:
                self._send(request_id)

    def _prepare(self, request: Request) -> None:
        prepared: _Message
        try:
            prepared = self._engine.prepare(request)
        except (KeyboardInterrupt, SystemExit):  # the caller's own
            raise
        except BaseException as error:  # a bug, or a library's panic: it must end the engine's thread, not the caller's
            prepared = error
        with self._changed:
            self._preparing.discard(request.id)
            self._compiling.pop(request.id, None)
            self._send(prepared)
            if request.id in self._aborted:
                self._aborted.remove(request.id)
                self._send(request.id)

    def _defer(self, finish: Callable[[], list[Output]]) -> None:
        self._finisher.submit(self._finish, finish)

    def _finish(self, finish: Callable[[], list[Output]]) -> None:
        message: _Message
        try:
            message = finish()
        except BaseException as error:  # a bug: it must end the engine's thread, as it would in a step
            message = error
        with self._changed:
            self._send(message)

    def _send(self, message: _Message) -> None:
        self._mailbox.append(message)
        self._changed.notify()

    def _loop(self) -> None:
        try:
            while self._run_round():
                pass
        except BaseException as error:  # the boundary of the engine's thread: any exception ends the engine
            self._fault = error
        finally:
            self._end()
        if self._fault is not None and self._on_end is not None:
            self._on_end()

    def _run_round(self) -> bool:
        """Run one round; return False if the loop must end."""
        messages = self._receive()
        for message in messages:
            self._take(message)
        if self._stopping:
            return False
        if not self._engine.idle:
            self._deliver_outputs(self._engine.step())
            self._checked = False
        elif not self._checked:
            self._engine.check()
            self._checked = True
        self._stats = self._engine.stats
        self._rounds += 1
        return True

    def _take(self, message: _Message) -> None:
        match message:
            case str():
                self._engine.abort(message)
            case list():
                self._deliver_outputs(message)
            case _Unprepared(request, submitted):
                self._engine.submit(request, submitted)
            case BaseException():
                raise message
            case _:
                self._engine.add(message)

    def _receive(self) -> list[_Message]:
        """Take the messages; an idle engine waits a moment for the first."""
        with self._changed:
            if self._engine.idle and not self._mailbox and not self._stopping:
                self._changed.wait(_IDLE_SECONDS)
            messages = list(self._mailbox)
            self._mailbox.clear()
            return messages

    def _deliver_outputs(self, outputs: list[Output]) -> None:
        ended = [output.id for output in outputs if type(output) in _TERMINALS]  # a union is slow to test
        with self._changed:
            self._in_flight.difference_update(ended)
        if outputs:
            self._deliver(outputs)

    def _end(self) -> None:
        with self._changed:
            self._ended = True
        self._compilers.shutdown(wait=False, cancel_futures=True)


def _is_short(request: Request) -> bool:
    """Return whether a request has a short prompt, and at most one image in it."""
    if request.adapter is not None:  # it may have to be read from disk first
        return False
    match request.task:
        case Query(question=text) | Detect(object=text) | Point(object=text):
            return len(text) <= _SHORT_TEXT and len(request.media) <= 1
        case Caption() | Gaze():
            return len(request.media) <= 1
    return False
