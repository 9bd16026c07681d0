"""Commands of one Redis server on connections of its own, with a third of the instructions of redis-py's client.

redis-py still connects, logs in, reads replies and names errors. Its pool, its two timeouts of every command and its
packing in Python take more of the event loop's time than the rest of a job that needs no image.
"""

import asyncio
from typing import Any

import hiredis
from redis.asyncio import Redis

from stoop_worker.jobs.redis.connect import make_connection

__all__ = ["Connections"]


class Connections:
    """The connections of `client` to one server, each used by one command at a time.

    A command, with the connecting that it may need, takes at most `timeout` seconds.
    """

    def __init__(self, client: Redis, *, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._all: list[Any] = []
        self._idle: list[Any] = []

    async def execute(self, *command: Any) -> Any:
        """Run one command and return its reply; raises redis-py's errors and OSError. No command is repeated."""
        connection = self._idle.pop() if self._idle else self._make()
        try:
            async with asyncio.timeout(self._timeout):
                await _ensure_usable(connection)
                await connection.send_packed_command([hiredis.pack_command(command)])
                return await self._client.parse_response(connection, command[0])
        except TimeoutError:
            raise TimeoutError(f"no answer in {self._timeout:g} s") from None
        finally:
            self._idle.append(connection)

    async def disconnect(self) -> None:
        """Drop every connection, even one on which a command blocks; the next command connects anew."""
        await asyncio.gather(*(connection.disconnect() for connection in self._all))

    def _make(self) -> Any:
        connection = make_connection(self._client)
        connection.socket_timeout = None  # a command has one timeout in all
        self._all.append(connection)
        return connection


async def _ensure_usable(connection: Any) -> None:
    if not connection.is_connected:
        await connection.connect()
    if await connection.can_read():  # the server closed it, or wrote what nobody asked for
        await connection.disconnect()
        await connection.connect()
