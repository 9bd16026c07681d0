"""Many channels on one connection to Redis; readers are notified of every loss of messages."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from redis.exceptions import RedisError, ResponseError

from stoop.backoff import backoff
from stoop.errors import ClientUnusable, StoopError
from stoop.redis.calls import explained, keeping_cancellation

__all__ = ["Subscriptions"]

log = logging.getLogger(__name__)

_CONFIRM_SECONDS = 10.0
_PING_SECONDS = 10.0
_BACKLOG = 256
_FIRST_SECONDS, _LONGEST_SECONDS = 0.1, 5.0  # between two connections
_ANYWAY_SECONDS = 15.0
"""After so much silence a reader looks for itself, whatever the counts say."""

_UNKNOWN: Final = object()

_Counts = Callable[[Sequence[str]], Awaitable[Sequence[object]]]


@dataclass(slots=True, eq=False)
class _Reader:
    """One subscriber's unread messages; None marks a place where messages may have been lost.

    `count` is how many messages there had been when the reader last had to look for itself, or unknown. `spoken` says
    whether a message came since the last check, and `quiet` counts the checks since then.
    """

    unread: deque[bytes | None] = field(default_factory=deque)
    count: object = _UNKNOWN
    spoken: bool = False
    quiet: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False

    def put(self, packed: bytes | None) -> None:
        if len(self.unread) >= _BACKLOG:
            # the reader is too slow: it finds the dropped messages in the log
            self.unread.clear()
            packed = None
        self.unread.append(packed)
        self.news.set()

    def check(self, count: object, most_quiet: int) -> None:
        """Take in the count of messages; look for lost ones if it changed in silence, or after a long silence."""
        if self.spoken:
            self.spoken, self.count, self.quiet = False, _UNKNOWN, 0
            return
        self.quiet += 1
        if count is _UNKNOWN or count != self.count or self.quiet >= most_quiet:
            self.count, self.quiet = count, 0
            self.put(None)

    def end(self) -> None:
        self.ended = True
        self.news.set()

    async def messages(self) -> AsyncIterator[bytes | None]:
        while not self.ended:
            if self.unread:
                yield self.unread.popleft()
                continue
            self.news.clear()
            await self.news.wait()


@dataclass(slots=True, eq=False)
class _Channel:
    """The readers of one channel; `confirmed` is set while the subscription is active in Redis.

    The messages of the channel are counted under `counter`.
    """

    counter: str
    confirmed: asyncio.Event = field(default_factory=asyncio.Event)
    readers: set[_Reader] = field(default_factory=set)
    refusal: Exception | None = None


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
        self._channels: dict[str, _Channel] = {}
        self._left: set[str] = set()
        self._connection: Any = None
        self._task: asyncio.Task[None] | None = None
        self._trouble: Exception = TimeoutError("no reply in time")
        self._closed = False

    @contextlib.asynccontextmanager
    async def subscribe(self, name: str, counter: str) -> AsyncIterator[AsyncIterator[bytes | None]]:
        """Yield the channel's messages from now on, and None after a silence or if some may have been lost.

        The channel's messages are counted under `counter`. Raises `QueueUnavailable` if Redis does not confirm the
        subscription within 10 s.
        """
        reader, channel = _Reader(), self._channels.setdefault(name, _Channel(counter))
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
        tasks = [task for task in (self._task, self._checking) if task]
        self._task = self._checking = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for channel in self._channels.values():
            for reader in channel.readers:
                reader.end()

    async def _confirmed(self, name: str, channel: _Channel) -> None:
        if self._closed:
            raise ClientUnusable("this client is closed")
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="subscriptions")
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check_silences(), name="silences")
        if len(channel.readers) == 1:
            self._left.discard(name)
            await self._send("SUBSCRIBE", name)
        try:
            async with asyncio.timeout(_CONFIRM_SECONDS):
                await channel.confirmed.wait()
        except TimeoutError:
            raise explained(self._trouble, self._address) from None
        if channel.refusal:
            raise explained(channel.refusal, self._address) from channel.refusal

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
                    reader.check(found.get(channel, _UNKNOWN), most_quiet)
        self._checking = None

    async def _leave(self) -> None:
        left, self._left = self._left, set()
        if left:
            await self._send("UNSUBSCRIBE", *left)

    async def _counted(self, channels: Sequence[_Channel]) -> dict[_Channel, object]:
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
                self._connection, failures = connection, 0
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
        asked = False
        while not self._closed:
            try:
                with keeping_cancellation():
                    message = await connection.read_response(timeout=_PING_SECONDS, disconnect_on_error=False)
            except ResponseError as error:
                self._refused(error)
                continue
            if message is not None:
                asked = False
                self._dispatch(message)
            elif asked:
                raise OSError("no answer to a ping")
            else:
                # only a ping reveals a connection that died silently
                asked = True
                with keeping_cancellation():
                    await connection.send_command("PING", check_health=False)

    def _dispatch(self, message: Any) -> None:
        match message:
            case [b"message", bytes(name), bytes(packed)] if channel := self._channels.get(name.decode()):
                for reader in channel.readers:
                    reader.spoken = True
                    reader.put(packed)
            case [b"subscribe", bytes(name), int()] if channel := self._channels.get(name.decode()):
                self._subscribed(channel)

    def _subscribed(self, channel: _Channel) -> None:
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
