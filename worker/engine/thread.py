"""The engine in a thread of its own, behind the port that the rest of the worker knows."""

from collections import deque
from collections.abc import Callable
from threading import Condition, Thread

from worker.engine.engine import Engine
from worker.engine.request import Aborted, Deliver, Finished, Output, Refused, Request
from worker.engine.stats import Stats
from worker.errors import EngineFault

__all__ = ["EngineThread"]

_IDLE_SECONDS = 0.25  # an idle loop goes round this often, so that `steps` shows it is alive


class EngineThread:
    """Steps the engine while there is work; implements `EnginePort`. `deliver` is called in the engine's thread.

    So is `on_end`, once, when a fault has ended the loop: `alive` is False and `fault` is set by then. A stop, which
    the owner knows of, does not call it.
    """

    def __init__(self, engine: Engine, deliver: Deliver, on_end: Callable[[], None] | None = None) -> None:
        self._engine = engine  # once started, others than the engine's thread read its marks alone
        self._deliver = deliver
        self._on_end = on_end
        self._thread = Thread(target=self._loop, name="engine", daemon=True)
        self._changed = Condition()  # guards the mailbox, the ids in flight, and the two flags
        self._mailbox: deque[Request | str] = deque()  # requests to submit, ids to abort
        self._in_flight: set[str] = set()
        self._stopping = False
        self._ended = False
        self._checked = False  # whether the pages were counted since there was work; the engine's thread's own
        # written by the engine's thread, read by any
        self._rounds = 0
        self._fault: Exception | None = None
        self._stats = engine.stats

    @property
    def steps(self) -> int:
        """Rounds of the loop, idle ones too, and the marks of the engine's progress inside them."""
        return self._rounds + self._engine.marks

    @property
    def alive(self) -> bool:
        """Whether the loop takes requests."""
        return not self._ended

    @property
    def fault(self) -> Exception | None:
        """What ended the loop, with its traceback; None while the loop runs and when it was stopped."""
        return self._fault

    @property
    def stats(self) -> Stats:
        """The engine's figures as of its last round."""
        return self._stats

    @property
    def figures(self) -> dict[str, float]:
        """The same figures by name, for who cannot know the engine's own types."""
        return self._stats.figures

    def start(self) -> None:
        """Start the loop."""
        self._thread.start()

    def stop(self) -> None:
        """End the loop after the step it is in, and wait for that; what has not ended is lost."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()
        self._end()

    def submit(self, request: Request) -> None:
        """Hand a request over; raises `EngineFault` when the loop has ended, ValueError when the id is in flight."""
        with self._changed:
            if self._ended:
                raise EngineFault("the engine has ended: start another")
            if request.id in self._in_flight:
                raise ValueError(f"request {request.id} is in flight already")
            self._in_flight.add(request.id)
            self._mailbox.append(request)
            self._changed.notify()

    def abort(self, request_id: str) -> None:
        """End a request within one step; does nothing if it has ended."""
        with self._changed:
            if request_id in self._in_flight:
                self._mailbox.append(request_id)
                self._changed.notify()

    def _loop(self) -> None:
        try:
            while self._turn():
                pass
        except Exception as error:  # the boundary of the engine's thread: whatever it was, the engine is over
            self._fault = error
        finally:
            self._end()
        if self._fault is not None and self._on_end is not None:
            self._on_end()

    def _turn(self) -> bool:
        """Go round once; False when the loop is to end."""
        messages = self._receive()
        for message in messages:
            if isinstance(message, Request):
                self._engine.submit(message)
            else:
                self._engine.abort(message)
        if self._stopping:
            return False
        if not self._engine.idle:
            self._tell(self._engine.step())
            self._checked = False
        elif not self._checked:
            self._engine.check()
            self._checked = True
        self._stats = self._engine.stats
        self._rounds += 1
        return True

    def _receive(self) -> list[Request | str]:
        """Take the messages; an idle engine waits a moment for the first."""
        with self._changed:
            if self._engine.idle and not self._mailbox and not self._stopping:
                self._changed.wait(_IDLE_SECONDS)
            messages = list(self._mailbox)
            self._mailbox.clear()
            return messages

    def _tell(self, outputs: list[Output]) -> None:
        with self._changed:
            self._in_flight.difference_update(
                output.id for output in outputs if isinstance(output, Finished | Refused | Aborted)
            )
        if outputs:
            self._deliver(outputs)

    def _end(self) -> None:
        with self._changed:
            self._ended = True
