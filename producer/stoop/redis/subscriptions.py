"""Many channels on one connection to Redis; readers are notified of every loss of messages."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from redis.exceptions import RedisError, ResponseError

from stoop.backoff import backoff
from stoop.errors import ClientUnusable, StoopError
from stoop.redis.calls import explained, keeping_cancellation
from stoop.redis.readers import UNKNOWN, Channel, Reader

__all__ = ["Subscriptions"]

log = logging.getLogger(__name__)

_CONFIRM_SECONDS = 10.0
_PING_SECONDS = 10.0
_FIRST_SECONDS, _LONGEST_SECONDS = 0.1, 5.0  # between two connections
_ANYWAY_SECONDS = 15.0
"""After this much silence a reader reads the log, whatever the counts are."""

_Counts = Callable[[Sequence[str]], Awaitable[Sequence[object]]]


class Subscriptions:
    """Subscribes to a channel while it has readers; reconnects for ever, with backoff, until closed.

    `make_connection` returns a new redis-py connection from outside the pool; `address` appears in messages.

    Every `silence` seconds one call of `counts`, with the counters of all silent channels, returns how many messages
    each has had. A reader receives None if its count changed though nothing came, and once in a longer silence. So a
    thousand readers that wait cost little more than one.
    """

    def __init__(self, make_connection: Callable[[], Any], address: str, *, silence: float, counts: _Counts) -> None:
        self._make_connection = make_connection
        self._address = address
        self._silence = silence
        self._counts = counts
        self._checking: asyncio.Task[None] | None = None
        self._channels: dict[str, Channel] = {}
        self._joining: set[str] = set()
        self._left: set[str] = set()
        self._sending: set[asyncio.Task[None]] = set()
        self._connection: Any = None
        self._heard_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._trouble: Exception = TimeoutError("no reply in time")
        self._closed = False

    @contextlib.asynccontextmanager
    async def subscribe(self, name: str, counter: str) -> AsyncIterator[AsyncIterator[bytes | None]]:
        """Yield the channel's messages from now on, and None after a silence or if some may have been lost.

        The channel's messages are counted under `counter`. Raises `QueueUnavailable` if Redis does not confirm the
        subscription within 10 s.
        """
        reader, channel = Reader(), self._channels.setdefault(name, Channel(counter))
        channel.readers.add(reader)
        try:
            await self._confirmed(name, channel)
            yield reader.messages()
        finally:
            channel.readers.discard(reader)
            if not channel.readers and self._channels.get(name) is channel:
                del self._channels[name]
                # many are left by one command, at the next check
                self._left.add(name)

    async def close(self) -> None:
        """Disconnect; every subscriber's iteration ends."""
        self._closed = True
        tasks = [task for task in (self._task, self._checking, *self._sending) if task]
        self._task = self._checking = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for channel in self._channels.values():
            for reader in channel.readers:
                reader.end()

    async def _confirmed(self, name: str, channel: Channel) -> None:
        if self._closed:
            raise ClientUnusable("this client is closed")
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="subscriptions")
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check_silences(), name="silences")
        if len(channel.readers) == 1:
            self._left.discard(name)
            self._join(name)
        try:
            async with asyncio.timeout(_CONFIRM_SECONDS):
                await channel.confirmed.wait()
        except TimeoutError:
            raise explained(self._trouble, self._address) from None
        if channel.refusal:
            raise explained(channel.refusal, self._address) from channel.refusal

    def _join(self, name: str) -> None:
        """Subscribe to a channel, by one command with all that get their first reader in this turn of the loop."""
        if not self._joining:
            asyncio.get_running_loop().call_soon(self._join_all)
        self._joining.add(name)

    def _join_all(self) -> None:
        joining, self._joining = self._joining & self._channels.keys(), set()
        if not joining:
            return
        sending = asyncio.create_task(self._send("SUBSCRIBE", *joining))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _check_silences(self) -> None:
        """Check while there are readers, and unsubscribe where there are none; the next reader starts another task."""
        most_quiet = max(1, round(_ANYWAY_SECONDS / self._silence))
        while self._channels or self._left:
            await asyncio.sleep(self._silence)
            channels = list(self._channels.values())
            try:
                await self._leave()
                found = await self._counted(channels)
            except Exception:
                # all readers depend on this task, so it survives every fault
                log.exception("the silent streams cannot be checked together, so each reads its own log")
                found = {}
            for channel in channels:
                for reader in channel.readers:
                    reader.check(found.get(channel, UNKNOWN), most_quiet)
        self._checking = None

    async def _leave(self) -> None:
        left, self._left = self._left, set()
        if left:
            await self._send("UNSUBSCRIBE", *left)

    async def _counted(self, channels: Sequence[Channel]) -> dict[Channel, object]:
        """Return the counts of the silent channels."""
        silent = [channel for channel in channels if any(not reader.spoken for reader in channel.readers)]
        if not silent:
            return {}
        try:
            return dict(zip(silent, await self._counts([channel.counter for channel in silent]), strict=True))
        except StoopError:
            # each reader finds out for itself how long it can wait
            return {}

    async def _send(self, *command: str) -> None:
        """Send if there is a connection; a new connection subscribes to all channels anyway."""
        connection = self._connection
        # redis-py would connect it again, though nothing reads from it any more
        if connection is None or not connection.is_connected:
            return
        # redis-py cuts the connection if a task is cancelled while it sends; others that send then get AttributeError
        with keeping_cancellation(), contextlib.suppress(RedisError, OSError, AttributeError):
            await connection.send_command(*command, check_health=False)

    async def _run(self) -> None:
        failures = 0
        while not self._closed:
            connection = self._make_connection()
            try:
                with keeping_cancellation():
                    await connection.connect()
                # redis-py would make a task to time each command, and a timer for each reply
                connection.socket_timeout = None
                self._connection, failures = connection, 0
                self._joining.clear()
                if self._channels:
                    await self._send("SUBSCRIBE", *self._channels)
                await self._read(connection)
            except (RedisError, OSError) as error:
                self._trouble = error
                log.warning("following Redis at %s again: %s", self._address, error or type(error).__name__)
            finally:
                self._connection = None
                await connection.disconnect(nowait=True)
            await asyncio.sleep(backoff(failures, first=_FIRST_SECONDS, longest=_LONGEST_SECONDS))
            failures += 1

    async def _read(self, connection: Any) -> None:
        """Read until the connection breaks. Only a ping reveals one that died silently."""
        loop = asyncio.get_running_loop()
        since = self._heard_at = loop.time()
        asked = False
        reading = asyncio.create_task(self._dispatch_all(connection))
        try:
            while not self._closed:
                await asyncio.wait({reading}, timeout=since + _PING_SECONDS - loop.time())
                if reading.done():
                    reading.result()
                elif self._heard_at > since:
                    since, asked = self._heard_at, False
                elif asked:
                    raise OSError("no answer to a ping")
                else:
                    since, asked = loop.time(), True
                    await connection.send_command("PING", check_health=False)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _dispatch_all(self, connection: Any) -> None:
        now, task = asyncio.get_running_loop().time, asyncio.current_task()
        # redis-py may lose a cancellation
        while task and not task.cancelling():
            try:
                message = await connection.read_response(disconnect_on_error=False)
            except ResponseError as error:
                self._refused(error)
                continue
            self._heard_at = now()
            self._dispatch(message)

    def _dispatch(self, message: Any) -> None:
        match message:
            case [b"message", bytes(name), bytes(packed)] if channel := self._channels.get(name.decode()):
                for reader in channel.readers:
                    reader.spoken = True
                    reader.put(packed)
            case [b"subscribe", bytes(name), int()] if channel := self._channels.get(name.decode()):
                self._subscribed(channel)

    def _subscribed(self, channel: Channel) -> None:
        if channel.confirmed.is_set():
            # this is a new subscription, so messages since the old one may be lost
            for reader in channel.readers:
                reader.put(None)
        channel.confirmed.set()

    def _refused(self, error: Exception) -> None:
        for channel in self._channels.values():
            if not channel.confirmed.is_set():
                channel.refusal = error
                channel.confirmed.set()
