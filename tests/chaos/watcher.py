"""Watches the queue from outside: writes every terminal event to the ledger, as often as it is published."""

import asyncio
import contextlib
import json

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from stoop_schemas import names
from tests.chaos.ledger import Ledger

__all__ = ["Watcher"]

_LAST = {"finished", "failed", "cancelled", "expired"}
_STATES = {"completed": "finished"}
_SILENCE_SECONDS = 1.0
_PAGE = 500


class Watcher:
    """Follows all channels of a partition; after a silence or a lost connection it asks for the results it missed."""

    def __init__(self, url: str, ledger: Ledger) -> None:
        self._url = url
        self._ledger = ledger
        self.following = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled; Redis may come and go."""
        while True:
            with contextlib.suppress(RedisError, OSError):
                await self._follow()
            self.following.clear()
            await asyncio.sleep(0.05)

    async def _follow(self) -> None:
        async with self._connect() as connection, connection.pubsub() as channels:
            await channels.psubscribe(f"{names.stem(0)}events:*")
            while True:
                message = await channels.get_message(timeout=_SILENCE_SECONDS)
                if message is None:
                    await self._catch_up(connection)
                elif message["type"] == "psubscribe":
                    self.following.set()
                    await self._catch_up(connection)
                else:
                    await self._note(message["data"])

    async def _note(self, packed: bytes) -> None:
        event = json.loads(packed)
        if event["type"] in _LAST:
            await self._ledger.end(event["id"], event["type"], published=True)

    async def _catch_up(self, connection: Redis) -> None:
        """Ask for the results of jobs whose last event was not heard."""
        missed = self._ledger.account.open
        for start in range(0, len(missed), _PAGE):
            page = missed[start : start + _PAGE]
            for job_id, packed in zip(
                page, await connection.mget([names.result(job_id) for job_id in page]), strict=True
            ):
                if packed is not None and job_id not in self._ledger.account.ended:
                    status = json.loads(packed)["status"]
                    await self._ledger.end(job_id, _STATES.get(status, status), published=False)

    def _connect(self) -> Redis:
        return Redis.from_url(self._url, protocol=2, socket_timeout=10.0, retry=Retry(NoBackoff(), 0))
