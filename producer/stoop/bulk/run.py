"""A run: keeps at most a window of rows in flight, until the source ends or the run is stopped."""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from stoop.bulk.budget import Budget
from stoop.bulk.output.line import Line
from stoop.bulk.output.output_folder import Output
from stoop.bulk.patience import PAUSES, Patience
from stoop.bulk.port import Client, Stop
from stoop.bulk.progress import Counts, Display
from stoop.bulk.row import Ask, Row
from stoop.bulk.row_run import RowRun
from stoop.bulk.sources import Source
from stoop.bulk.submitter import Submitter
from stoop.errors import QueueUnavailable, StoopError, UploadFailed

__all__ = ["Limits", "Run"]

_READ_ROWS: Final = 256
_READ_BYTES: Final = 8 << 20
_UPLOADS: Final = 16
_FLUSH_SECONDS: Final = 0.2
_SYNC_SECONDS: Final = 5.0
_COUNT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """At most `window` rows are in flight at once; the run reads `rows` of the source (None: all).

    If the queue is unreachable, the call is made again after each of the `pauses` (seconds).
    """

    window: int = 512
    budget: Budget = field(default_factory=Budget)
    rows: int | None = None
    pauses: tuple[float, ...] = PAUSES


class Run:
    """One session of a run. Others may read `counts` and `stop` while it runs."""

    def __init__(self, source: Source, output: Output, display: Display, limits: Limits) -> None:
        self._source = source
        self._output = output
        self._display = display
        self._limits = limits
        self._permits = asyncio.Semaphore(limits.window)
        self.in_flight = 0
        self._before = output.totals.seconds
        self._read_all = False
        self._given_up = False
        self.counts = Counts()
        self.stop = Stop()

    @property
    def stopped(self) -> str | None:
        """The reason why rows of the source remain; None if every row has ended."""
        whole = self._read_all and not self._given_up and self.stop.error is None
        return None if whole and self.stop.reason == "interrupted" else self.stop.reason

    async def go(self, client: Client, ask: Ask, lane: str) -> None:
        """Run every unfinished row. Raises the error that stopped the run, after writing all finished rows."""
        patience = Patience(self.stop, self._display.note, self._limits.pauses)
        submitter = Submitter(client, patience)
        row_run = RowRun(client, submitter, ask, lane, self._output.run, patience, asyncio.Semaphore(_UPLOADS))
        await self._count_ahead()
        try:
            async with asyncio.TaskGroup() as group:
                beside = [group.create_task(submitter.serve()), group.create_task(self._keep())]
                await self._start_all(group, row_run)
                for task in beside:
                    task.cancel()
        except* StoopError as errors:  # the output cannot be written
            self.stop.reason, self.stop.error = "error", next(_leaves(errors))
        self._show_progress()
        if self.stop.error is not None:
            raise self.stop.error

    async def _start_all(self, group: asyncio.TaskGroup, row_run: RowRun) -> None:
        """Start each row once it has a permit, then wait for all of them to end."""
        async with contextlib.aclosing(self._rows()) as rows:
            async for row, tries in rows:
                await self._permits.acquire()
                if self.stop.asked:
                    self._permits.release()
                    break
                if row.is_local:
                    await row_run.uploads.acquire()
                group.create_task(self._run_row(row_run, row, tries))
        for _ in range(self._limits.window):
            await self._permits.acquire()

    async def _rows(self) -> AsyncGenerator[tuple[Row, int], None]:
        """Read the source in a thread, a few hundred rows at a time, and skip finished rows."""
        rows = itertools.islice(self._source.rows(), self._limits.rows)
        while not self.stop.asked:
            try:
                group = await asyncio.to_thread(_take, rows)
            except StoopError as error:
                self._stop_for(error)
                return
            if not group:
                self._read_all = True
                return
            for row in group:
                done, tries = self._output.lookup(row.name)
                if done:
                    self.counts.skipped += 1
                else:
                    yield row, tries

    async def _run_row(self, row_run: RowRun, row: Row, tries: int) -> None:
        try:
            self.in_flight += 1
            prepared = await row_run.prepare(row, tries)
            row = row.light  # its bytes are uploaded and no longer needed
            line = prepared if isinstance(prepared, Line) else await row_run.finish(row, prepared)
        except StoopError as error:
            self._stop_for(error)
            return
        finally:
            self.in_flight -= 1
            self._permits.release()
        if line is None:
            self._given_up = True
        elif self._output.put(line):
            self._count(line)

    def _stop_for(self, error: StoopError) -> None:
        self.stop.ask("unavailable" if isinstance(error, QueueUnavailable | UploadFailed) else "error", error)

    def _count(self, line: Line) -> None:
        if line.failure is None:
            self.counts.done += 1
            self.counts.tokens += line.metrics.output_tokens if line.metrics else 0
            return
        self.counts.failed += 1
        totals, budget = self._output.totals, self._limits.budget
        if budget.is_hopeless(totals.failed, totals.ended):
            self.stop.ask("max_failures")

    async def _keep(self) -> None:
        """Show the progress, and commit the written rows."""
        for tick in itertools.count(1):
            await asyncio.sleep(_FLUSH_SECONDS)
            self._output.flush()
            if tick % round(_SYNC_SECONDS / _FLUSH_SECONDS) == 0:
                self._output.sync()
            self._show_progress()

    def _show_progress(self) -> None:
        self._output.totals.seconds = self._before + self.counts.seconds
        self.counts.look()
        self._display.show(self.counts)

    async def _count_ahead(self) -> None:
        """Start counting the rows, and show zero progress; a slow count continues in the background."""
        loop, counted = asyncio.get_running_loop(), asyncio.Event()

        def learn(total: int | None) -> None:
            self.counts.total = total
            with contextlib.suppress(RuntimeError):  # the session has ended meanwhile
                loop.call_soon_threadsafe(counted.set)

        _count_aside(self._source, self._limits.rows, learn)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(counted.wait(), _COUNT_SECONDS)
        self._display.show(self.counts)


def _take(rows: Iterator[Row]) -> list[Row]:
    """Read a few hundred rows, or fewer if they contain their images."""
    group: list[Row] = []
    weight = 0
    for row in itertools.islice(rows, _READ_ROWS):
        group.append(row)
        weight += row.weight
        if weight > _READ_BYTES:
            break
    return group


def _count_aside(source: Source, most: int | None, on_counted: Callable[[int | None], None]) -> None:
    """Count in a thread of its own: listing millions of keys takes minutes. None if the source cannot be read."""

    def count() -> None:
        try:
            total = source.count()
        except StoopError:  # reading the rows raises it as well
            on_counted(None)
            return
        on_counted(total if most is None else min(total, most))

    threading.Thread(target=count, name="stoop-count", daemon=True).start()


def _leaves(group: BaseExceptionGroup[StoopError]) -> Iterator[StoopError]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
