"""A plain source of jobs, iterated in a thread of its own: it may block, and call the client that pulls from it."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import AsyncGenerator, Iterable, Iterator

from stoop_schemas.job import Job

__all__ = ["pulled"]


class _Wanted(asyncio.Future[Job | None]):
    """The next job, or None when the source has ended; set from the thread that pulls."""

    def deliver(self, job: Job | None, error: BaseException | None) -> None:
        # a closed loop has no one waiting for the job
        with contextlib.suppress(RuntimeError):
            self.get_loop().call_soon_threadsafe(self._settle, job, error)

    def _settle(self, job: Job | None, error: BaseException | None) -> None:
        if self.done():
            return
        if error is None:
            self.set_result(job)
        else:
            self.set_exception(error)


async def pulled(jobs: Iterable[Job]) -> AsyncGenerator[Job, None]:
    """Yield the jobs, each pulled on demand. Raises the source's own errors.

    If the consumer stops while the source blocks, the thread lives on. It is a daemon, so it delays neither the
    loop nor the end of the process.
    """
    wanted_jobs: queue.SimpleQueue[_Wanted | None] = queue.SimpleQueue()
    threading.Thread(target=_pull, args=(iter(jobs), wanted_jobs), name="stoop-jobs", daemon=True).start()
    try:
        while True:
            wanted = _Wanted()
            wanted_jobs.put(wanted)
            job = await wanted
            if job is None:
                return
            yield job
    finally:
        wanted_jobs.put(None)


def _pull(jobs: Iterator[Job], wanted_jobs: "queue.SimpleQueue[_Wanted | None]") -> None:
    while (wanted := wanted_jobs.get()) is not None:
        try:
            wanted.deliver(next(jobs, None), None)
        except BaseException as error:  # raised where the job is awaited
            wanted.deliver(None, error)
