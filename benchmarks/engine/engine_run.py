"""Sends requests through the engine as the worker does: other threads prepare them, and the engine has its own."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from random import Random
from threading import Lock
from typing import Generic, TypeVar

from stoop_worker.engine.request import Aborted, Finished, Output, Refused, Request
from stoop_worker.engine.thread import AnyEngine, EngineThread

__all__ = ["EngineRun", "Record", "RequestOf"]

_THREADS = 8  # the most that load images in a worker
_PATIENCE_SECONDS = 120.0

_Ask = TypeVar("_Ask")

RequestOf = Callable[[str, _Ask], Request]
"""Takes a request's id and a question, and returns the request; called in a thread beside the engine's."""


@dataclass(slots=True)
class Record:
    """One request: seconds on one clock. `arrived` is when it was asked, `output_times` when outputs came."""

    arrived: float
    submitted: float = 0.0
    ended: float = 0.0
    ttft: float = 0.0
    tokens: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_times: list[float] = field(default_factory=list)


class EngineRun(Generic[_Ask]):
    """A started engine with many clients; `with` ends it. A request that does not complete ends the run.

    `on_exit` is called after the last use of `request_of`.
    """

    def __init__(
        self, engine: AnyEngine, request_of: RequestOf[_Ask], *, on_exit: Callable[[], None] = lambda: None
    ) -> None:
        self._request_of = request_of
        self._on_exit = on_exit
        self._pool = ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1), thread_name_prefix="requests")
        self._engine = EngineThread(engine, self._deliver, self._give_up)
        self._records: dict[int, Record] = {}
        self._in_flight = 0
        self._lock = Lock()  # guards records and in_flight
        self._ends: SimpleQueue[int | BaseException] = SimpleQueue()  # numbers as they end; a fault ends all
        self.step_hook: Callable[[], None] | None = None  # called in the engine's thread after a step with outputs

    def __enter__(self) -> "EngineRun[_Ask]":
        self._engine.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._on_exit()
        self._engine.stop()

    def closed_loop(self, asks: Iterator[_Ask], concurrency: int, *, most: int, seconds: float) -> list[Record]:
        """Keep `concurrency` requests in flight until `most` have ended or the time is over; return them in that order.

        Requests still in flight at the end are waited for, and left out.
        """
        with self._lock:
            self._records.clear()
        ended: list[int] = []
        until = time.perf_counter() + seconds
        for number in range(concurrency):
            self._ask(number, next(asks), time.perf_counter())
        started = concurrency
        while len(ended) < most and time.perf_counter() < until:
            ended.append(self._next_end())
            self._ask(started, next(asks), time.perf_counter())
            started += 1
        records = [self._records[number] for number in ended]
        self._drain()
        return records

    def together(self, asks: Sequence[_Ask]) -> list[Record]:
        """Ask everything at once, after the last request is made; return the records in order."""
        with self._lock:
            self._records.clear()
        requests = list(self._pool.map(self._request_of, map(str, range(len(asks))), asks))
        now = time.perf_counter()
        for number, request in enumerate(requests):
            self._record(number, now)
            self._submit(number, request)
        self._drain()
        return [self._records[number] for number in range(len(asks))]

    def open_loop(self, asks: Iterator[_Ask], rate: float, *, seconds: float, seed: int) -> tuple[list[Record], int]:
        """Let requests arrive at random, `rate` a second on average; return their records and how many were left.

        A request's latency counts from when it was due, even if its submission is late. The requests left at the end
        of the time are waited for.
        """
        random = Random(seed)
        with self._lock:
            self._records.clear()
        began = time.perf_counter()
        due, number = began + random.expovariate(rate), 0
        while due < began + seconds:
            time.sleep(max(0.0, due - time.perf_counter()))
            self._ask(number, next(asks), due)
            due, number = due + random.expovariate(rate), number + 1
        left = self._in_flight
        self._drain()
        return [self._records[number] for number in range(number)], left

    def _ask(self, number: int, ask: _Ask, arrived: float) -> None:
        self._record(number, arrived)
        self._pool.submit(self._make_and_submit, number, ask)

    def _record(self, number: int, arrived: float) -> None:
        with self._lock:
            self._records[number] = Record(arrived)
            self._in_flight += 1

    def _make_and_submit(self, number: int, ask: _Ask) -> None:
        try:
            self._submit(number, self._request_of(str(number), ask))
        except BaseException as error:  # the boundary of a pool's thread: the error must reach the run
            self._ends.put(error)

    def _submit(self, number: int, request: Request) -> None:
        self._records[number].submitted = time.perf_counter()
        self._engine.submit(request)

    def _deliver(self, outputs: Sequence[Output]) -> None:
        now = time.perf_counter()
        for name in {output.id for output in outputs}:
            self._records[int(name)].output_times.append(now)
        for output in outputs:
            if isinstance(output, Finished):
                self._end(int(output.id), output, now)
            elif isinstance(output, Refused | Aborted):
                self._ends.put(RuntimeError(f"the engine did not run a request: {output}"))
        if self.step_hook is not None:
            self.step_hook()

    def _end(self, number: int, output: Finished, now: float) -> None:
        record = self._records[number]
        usage = output.usage
        record.ended, record.tokens = now, usage.output_tokens
        record.input_tokens, record.cached_tokens = usage.input_tokens, usage.cached_tokens
        record.ttft = record.submitted - record.arrived + usage.ttft_ms / 1e3
        with self._lock:
            self._in_flight -= 1
        self._ends.put(number)

    def _give_up(self) -> None:
        self._ends.put(self._engine.fault or RuntimeError("the engine ended"))

    def _next_end(self) -> int:
        try:
            end = self._ends.get(timeout=_PATIENCE_SECONDS)
        except Empty:
            raise RuntimeError(f"no request has ended for {_PATIENCE_SECONDS:g} s") from None
        if isinstance(end, BaseException):
            raise end
        return end

    def _drain(self) -> None:
        """Wait until nothing is in flight and every end has been handled."""
        while self._in_flight or not self._ends.empty():
            self._next_end()
