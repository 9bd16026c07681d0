"""A run: keeps at most a window of rows in flight, until the source ends or the run is stopped."""

import asyncio
import contextlib
import functools
import itertools
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from stoop.bulk.budget import Budget
from stoop.bulk.output.line import Line
from stoop.bulk.output.output_folder import Output
from stoop.bulk.port import Client, Stop, Stopped
from stoop.bulk.progress import IMAGES, Counts, Display, Unit
from stoop.bulk.row import Ask, Row, grouped
from stoop.bulk.row_run import RowRun
from stoop.bulk.sources import Source
from stoop.client.outage import Retrying
from stoop.client.submission import Submitter
from stoop.client.window import Window
from stoop.errors import QueueUnavailable, StoopError, UploadFailed
from stoop_schemas.job import Job

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

    In each outage of the queue or the object store, the run waits up to `outage_seconds`. With `forget` a job's
    answer is removed from the queue once its lines are on disk.
    """

    window: int = 512
    budget: Budget = field(default_factory=Budget)
    rows: int | None = None
    outage_seconds: float = 120.0
    forget: bool = False


class Run:
    """One session of a run. Others may read `counts` and `stop` while it runs."""

    def __init__(self, source: Source, output: Output, display: Display, limits: Limits, unit: Unit = IMAGES) -> None:
        self._source = source
        self._output = output
        self._display = display
        self._limits = limits
        self._uploads = asyncio.Semaphore(_UPLOADS)
        self.in_flight = 0
        self._before = output.totals.seconds
        self._read_all = False
        self._given_up = False
        self._rows_ended = asyncio.Event()
        self._written: list[str] = []
        self.counts = Counts(unit=unit)
        self.stop = Stop()
        self._archive_retrying = self._retrying()

    @property
    def stopped(self) -> str | None:
        """The reason why rows of the source remain; None if every row has ended."""
        whole = self._read_all and not self._given_up and self.stop.error is None
        return None if whole and self.stop.reason == "interrupted" else self.stop.reason

    async def go(self, client: Client, ask: Ask, lane: str) -> None:
        """Run every unfinished row. Raises the error that stopped the run, after writing all finished rows."""
        await self._count_ahead()
        try:
            async with asyncio.TaskGroup() as group:
                keeping = group.create_task(self._keep(client))
                group.create_task(self._archive_shards())
                await self._run_rows(client, ask, lane)
                self._rows_ended.set()
                keeping.cancel()
            await self._end(client)
        except* StoopError as errors:  # the output cannot be written
            self.stop.reason, self.stop.error = "error", next(_leaves(errors))
        self._show_progress()
        if self.stop.error is not None:
            raise self.stop.error

    async def _run_rows(self, client: Client, ask: Ask, lane: str) -> None:
        """Run rows through the window, and write their lines."""

        async def put(jobs: Sequence[Job]) -> list[str]:
            self.stop.check()
            return await client.submit_many(jobs)

        queue, store = self._retrying(), self._retrying()
        window: Window[list[Line]] = Window(self._limits.window)
        async with Submitter(put, queue) as submitter:
            row_run = RowRun(client, submitter, ask, lane, self._output.run, queue, store, self._uploads)
            async with contextlib.aclosing(window.results(self._row_runs(row_run))) as lines:
                async for ended in lines:
                    self._put(ended)

    def _retrying(self) -> Retrying:
        return Retrying(self._limits.outage_seconds, pause=self.stop.pause, note=self._display.note, needs_answer=True)

    async def _row_runs(self, row_run: RowRun) -> AsyncGenerator[Coroutine[Any, Any, list[Line]], None]:
        async with contextlib.aclosing(self._rows()) as rows:
            async for row, tries in rows:
                if row.is_local:
                    await self._uploads.acquire()
                if self.stop.asked:
                    return
                yield self._run_row(row_run, row, tries)

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
                for unfinished in self._unfinished(row):
                    yield unfinished

    def _unfinished(self, row: Row) -> Iterator[tuple[Row, int]]:
        """Return the row with the number of its failures, unless it is done; of a group, the members that are not.

        A group is divided by the members' failures alone, because the same members make the same job in each session.
        """
        found: dict[int, tuple[list[Row], list[bool]]] = {}
        for part in row.parts:
            done, tries = self._output.lookup(part.name)
            parts, dones = found.setdefault(tries, ([], []))
            parts.append(part)
            dones.append(done)
        for tries, (parts, dones) in found.items():
            self.counts.skipped += sum(dones)
            if not all(dones):
                yield row if len(parts) == len(row.parts) else grouped(parts), tries

    async def _run_row(self, row_run: RowRun, row: Row, tries: int) -> list[Line]:
        """Return the row's lines, or none if the run ended before there were any."""
        self.in_flight += 1
        try:
            prepared = await row_run.prepare(row, tries)
            row = row.light  # its bytes are uploaded and no longer needed
            return prepared if isinstance(prepared, list) else await row_run.finish(row, prepared, tries)
        except Stopped:
            self._given_up = True
        except StoopError as error:
            self._stop_for(error)
        finally:
            self.in_flight -= 1
        return []

    def _stop_for(self, error: StoopError) -> None:
        self.stop.ask("unavailable" if isinstance(error, QueueUnavailable | UploadFailed) else "error", error)

    def _put(self, lines: list[Line]) -> None:
        for line in lines:
            if self._output.put(line):
                self._count(line)
        self._written += {line.job for line in lines if line.job is not None} if self._limits.forget else ()

    def _count(self, line: Line) -> None:
        if line.failure is None:
            self.counts.done += 1
            spent = line.metrics
            self.counts.tokens += self.counts.unit.tokens(spent.input_tokens, spent.output_tokens) if spent else 0
            return
        self.counts.failed += 1
        totals, budget = self._output.totals, self._limits.budget
        if budget.is_hopeless(totals.failed, totals.ended):
            self.stop.ask("max_failures")

    async def _keep(self, client: Client) -> None:
        """Show the progress, and commit the written rows."""
        for tick in itertools.count(1):
            await asyncio.sleep(_FLUSH_SECONDS)
            self._output.flush()
            if tick % round(_SYNC_SECONDS / _FLUSH_SECONDS) == 0:
                await self._sync(client)
            self._show_progress()

    async def _sync(self, client: Client) -> None:
        """Commit the written rows. Their answers are then no longer needed in the queue."""
        self._output.sync()
        written, self._written = self._written, []
        if written:
            with contextlib.suppress(QueueUnavailable):  # they expire
                await client.forget(written)

    async def _archive_shards(self) -> None:
        """Move full shards to the archive, as long as rows run. It is not cancelled, because its thread is not."""
        if self._output.archive is None:
            return
        while not self._rows_ended.is_set() and self.stop.error is None:
            await self._archive_full()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._rows_ended.wait(), _FLUSH_SECONDS)

    async def _archive_full(self) -> None:
        try:
            for shard in self._output.full_shards:
                store = functools.partial(asyncio.to_thread, self._output.store, shard)
                self._output.drop(shard, await self._archive_retrying.run(store))
        except Stopped:
            pass  # the next session archives the rest
        except StoopError as error:
            self._stop_for(error)

    async def _end(self, client: Client) -> None:
        """Commit the last rows; if every row has ended, the last shard is full."""
        await self._sync(client)
        if self._output.archive is not None and self.stopped is None:
            self._output.end_shard()
            await self._archive_full()

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
