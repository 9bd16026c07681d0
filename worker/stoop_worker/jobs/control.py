"""The channel to all workers at once; its only command so far cancels a running job."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import structlog
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from stoop_schemas import names
from stoop_worker.jobs.backoff import Backoff
from stoop_worker.jobs.outage import RedisOutage
from stoop_worker.jobs.redis.connect import close, connect, make_connection, read_url

__all__ = ["Control"]

log = structlog.get_logger(__name__)

_QUIET_SECONDS = 10.0


class _Command(msgspec.Struct, frozen=True):
    verb: str
    id: str = ""


class Control:
    """Listens, and calls `cancel` with the id of each cancelled job, on whichever worker it runs.

    It misses commands while the connection is down; the worker then finds the job's cancel flag when it renews its
    lease. After `quiet` seconds of silence it checks the connection with a PING.
    """

    def __init__(
        self,
        url: str,
        cancel: Callable[[str], None],
        *,
        quiet: float = _QUIET_SECONDS,
        outage: RedisOutage | None = None,
    ) -> None:
        self._outage = outage or RedisOutage()
        self._client = connect(read_url(url), timeout=quiet)
        self._cancel = cancel
        self._quiet = quiet

    async def run(self) -> None:
        """Listen until cancelled, through every loss of the connection."""
        backoff = Backoff()
        try:
            while True:
                try:
                    await self._listen(backoff)
                except (RedisError, OSError) as error:
                    self._outage.failed("listening for cancelled jobs", error)
                await asyncio.sleep(backoff.next())
        finally:
            await close(self._client)

    async def _listen(self, backoff: Backoff) -> None:
        connection = make_connection(self._client)
        try:
            await connection.connect()
            await connection.send_command("SUBSCRIBE", names.CONTROL)
            asked = False
            while True:
                _raise_lost_cancellation()
                # None after a timeout; redis-py raises only if the timeout was set on the connection itself
                reply = await connection.read_response(timeout=self._quiet, disconnect_on_error=False)
                if reply is None:
                    if asked:
                        raise RedisTimeoutError("no reply for twice as long: the connection is dead")
                    await connection.send_command("PING")
                    asked = True
                    continue
                asked = False
                backoff.reset()
                self._outage.succeeded("listening for cancelled jobs")
                self._receive(reply)
        finally:
            await connection.disconnect()

    def _receive(self, reply: Any) -> None:
        if reply[0] != b"message":
            return
        try:
            command = msgspec.json.decode(reply[2], type=_Command)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            log.warning("a command could not be read")
            return
        if command.verb == "cancel":
            self._cancel(command.id)


def _raise_lost_cancellation() -> None:
    """Raise a cancellation that redis-py may have lost: on Python 3.11, one that arrives just after a read."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
