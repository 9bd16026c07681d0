"""Follows jobs to their end and posts their results, signed, to one address, at least once: `python relay.py`.

Which jobs, is in a stream of Redis, `webhooks`: one entry with the field `job` each. An entry is removed when its
result was taken, so whatever dies meanwhile, nothing is forgotten.
"""

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError
from signing import sign

from stoop import AsyncClient, JobCancelled, JobExpired, JobFailed, StoopError, TimedOut
from stoop_schemas import names

__all__ = ["FAILED", "STREAM", "Relay"]

STREAM, FAILED, GROUP = "webhooks", "webhooks:failed", "relays"
AT_ONCE = 256
LOST_SECONDS = 3600
"""A job that the queue does not know for so long was never submitted, or its result is gone."""

log = logging.getLogger("relay")


@dataclass(frozen=True, slots=True)
class Relay:
    """Posts to `url`; an event that is not answered with 2xx is posted again, up to `tries` times, after `pause`
    seconds, then twice, four times that, up to a minute. `name` distinguishes relays that share the stream: each begins
    with its unfinished entries, so give it the same name after a restart.
    """

    client: AsyncClient
    redis: Redis
    http: httpx.AsyncClient
    url: str
    secret: str
    name: str
    tries: int
    pause: float

    async def run(self) -> None:
        """Work until cancelled."""
        room = asyncio.Semaphore(AT_ONCE)
        last = "0"  # first the unfinished entries; then ">", the new ones
        async with asyncio.TaskGroup() as tasks:
            while True:
                await room.acquire()
                entry = await self._next(last)
                if entry is None:
                    room.release()
                    last = ">"
                    continue
                last = ">" if last == ">" else entry[0]
                tasks.create_task(self._relay(*entry)).add_done_callback(lambda _: room.release())

    async def _next(self, last: str) -> tuple[str, str] | None:
        while True:
            try:
                reply: Any = await self.redis.xreadgroup(GROUP, self.name, {STREAM: last}, count=1, block=1000)
                break
            except RedisError as error:
                if "NOGROUP" in str(error):
                    with suppress(ResponseError):  # another relay was faster
                        await self.redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
                    continue
                log.warning("Redis is away: %s", error)
                await asyncio.sleep(self.pause)
        for entry_id, fields in reply[0][1] if reply else []:
            return entry_id.decode(), fields.get(b"job", b"").decode()
        return None

    async def _relay(self, entry_id: str, job_id: str) -> None:
        """See one job through; its entry stays until that is done."""
        while True:
            try:
                body = await self._result(job_id)
                if body is None or not await self._taken(job_id, body):
                    log.error("gave up on job %s: it is in %s", job_id, FAILED)
                    await self.redis.xadd(FAILED, {"job": job_id}, maxlen=100_000)
                await self.redis.xack(STREAM, GROUP, entry_id)
                await self.redis.xdel(STREAM, entry_id)
                return
            except (StoopError, RedisError) as error:
                log.warning("job %s waits: %s", job_id, error)
                await asyncio.sleep(self.pause)

    async def _result(self, job_id: str) -> bytes | None:
        """Wait for the job's end, and return its stored result; None if there is none."""
        while True:
            try:
                await self.client.result(job_id, LOST_SECONDS)
            except TimedOut as error:
                if error.state is None:
                    return None
                continue
            except (JobFailed, JobCancelled, JobExpired):
                pass  # these have a result too
            packed: bytes | None = await self.redis.get(names.result(job_id))  # type: ignore[assignment]
            return packed

    async def _taken(self, job_id: str, body: bytes) -> bool:
        for attempt in range(self.tries):
            headers = {"content-type": "application/json", **sign(self.secret, job_id, body)}
            try:
                answer = await self.http.post(self.url, content=body, headers=headers)
                if answer.is_success:
                    return True
                log.warning("job %s: answered with %d", job_id, answer.status_code)
            except httpx.HTTPError as error:
                log.warning("job %s: %r", job_id, error)
            await asyncio.sleep(min(60.0, self.pause * 2 ** min(attempt, 10)))
        return False


async def main() -> None:
    """Run one relay, configured by the environment, until SIGTERM."""
    async with (
        AsyncClient() as client,
        Redis.from_url(os.environ.get("STOOP_REDIS_URL", "redis://localhost:6379/0"), protocol=2) as redis,
        httpx.AsyncClient(timeout=10) as http,
    ):
        relay = Relay(
            client,
            redis,
            http,
            url=os.environ["WEBHOOK_URL"],
            secret=os.environ["WEBHOOK_SECRET"],
            name=os.environ.get("WEBHOOK_RELAY", "relay-0"),
            tries=int(os.environ.get("WEBHOOK_TRIES", "60")),
            pause=float(os.environ.get("WEBHOOK_PAUSE_SECONDS", "1")),
        )
        running = asyncio.ensure_future(relay.run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        with suppress(asyncio.CancelledError):
            await running


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if missing := [name for name in ("WEBHOOK_URL", "WEBHOOK_SECRET") if name not in os.environ]:
        sys.exit(f"set {' and '.join(missing)}")
    try:
        sign(os.environ["WEBHOOK_SECRET"], "", b"")
    except ValueError as error:
        sys.exit(f"WEBHOOK_SECRET: {error}")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    asyncio.run(main())
