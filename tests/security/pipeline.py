"""A whole worker except its model: real Redis, real S3, a real TLS server, the product's own claiming, fetching,
decoding and publishing, and an engine that answers by the test's script. Each case goes in as a bare XADD."""

import asyncio
import contextlib
import io
import logging
import re
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import structlog
from redis.asyncio import Redis

from stoop.demo.embedded import EmbeddedS3
from stoop_schemas import names
from stoop_schemas.allowed import AllowedBuckets
from stoop_schemas.codec import unpack_event, unpack_result
from stoop_schemas.result import Result
from stoop_schemas.signature import SigningKeys
from stoop_worker.engine.request import Finished, Output, Query, Request, Sampling, TextDelta
from stoop_worker.images import CropGeometry, ImageLimits
from stoop_worker.jobs.budget import Budget
from stoop_worker.jobs.consumer import Consumer, Permits
from stoop_worker.jobs.executor import Executor
from stoop_worker.jobs.fetch.fetcher import FetchConfig, Fetcher
from stoop_worker.jobs.fetch.https import HttpsConfig, HttpsFetcher
from stoop_worker.jobs.prepare import Budgets, ImagePreparer, Images
from stoop_worker.jobs.publisher import Identity, Publisher
from stoop_worker.jobs.redis.broker import BrokerConfig, RedisBroker
from stoop_worker.jobs.relay import Relay
from stoop_worker.logs import configure_logs
from stoop_worker.metrics import Metrics
from tests.security.case import BUCKET, HOST, MARK, Case
from tests.support.authority import Authority
from tests.support.engine import ScriptedEngine
from tests.support.web_server import Web, running_web

__all__ = ["Seen", "Servers", "run"]

SECONDS = 60.0
_LIMITS = ImageLimits(max_bytes=1 << 20, max_pixels=4_000_000)
_ENDS = {"finished", "failed", "cancelled", "expired"}


@dataclass(frozen=True)
class Servers:
    """The servers that a pipeline needs: an empty Redis, an S3 server in the environment, and a folder."""

    redis_url: str
    s3: EmbeddedS3
    folder: Path


@dataclass(frozen=True)
class Seen:
    """The outcome of all cases: their results, the texts that the engine received, the log, and the remaining keys."""

    results: dict[str, Result]
    asked: list[str]
    log: str
    waiting: int
    pending: int
    dead: int


async def run(cases: Sequence[Case], servers: Servers, keys: SigningKeys | None = None) -> Seen:
    """Put every case into the queue of one worker, and wait for the end of each."""
    for key, image in [pair for case in cases for pair in case.objects.items()]:
        servers.s3.client().put_object(Bucket=BUCKET, Key=key, Body=image)
    engine = ScriptedEngine(_answer)
    with _logged() as log:
        async with _worker(cases, servers, engine, keys), _redis(servers.redis_url) as redis:
            entries = [await _put(redis, case) for case in cases]
            results = {}
            for case, entry in zip(cases, entries, strict=True):
                results[case.name] = await _result(redis, _places(case, entry))
            lane = names.lane("interactive")
            waiting = int(await redis.xlen(lane))
            pending = int((await redis.xpending(lane, names.GROUP))["pending"])
            dead = int(await redis.xlen(names.dead()))
    asked = [request.task.question for request in engine.requests if isinstance(request.task, Query)]
    return Seen(results, asked, log.getvalue(), waiting, pending, dead)


def _answer(request: Request) -> list[Output]:
    at_length = isinstance(request.task, Query) and request.task.question.startswith("at length")
    text = f"An answer with {MARK}." * (50_000 if at_length else 1)
    outputs: list[Output] = [TextDelta(request.id, text)]
    last: Finished = ScriptedEngine.finished(request.id, text)
    return [*outputs, last]


@contextlib.contextmanager
def _logged() -> Iterator[io.StringIO]:
    """Collect all that is logged at INFO and above, by the worker's log and by every library's."""
    log = io.StringIO()
    library = logging.StreamHandler(log)
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(library)
    root.setLevel(logging.INFO)
    try:
        with contextlib.redirect_stderr(log):
            configure_logs("info", "json")
            yield log
    finally:
        structlog.reset_defaults()
        root.removeHandler(library)
        root.setLevel(level)


@contextlib.asynccontextmanager
async def _redis(url: str) -> "AsyncIterator[Redis[bytes]]":
    async with Redis.from_url(url, protocol=2, socket_timeout=SECONDS) as redis:
        yield redis


@contextlib.asynccontextmanager
async def _worker(
    cases: Sequence[Case], servers: Servers, engine: ScriptedEngine, keys: SigningKeys | None
) -> AsyncIterator[None]:
    authority = Authority(servers.folder)
    relay = Relay(asyncio.get_running_loop())
    engine.deliver = relay.deliver
    relay.attach(engine)
    name = f"careful-{secrets.token_hex(3)}"
    broker = RedisBroker(BrokerConfig(url=servers.redis_url, worker=name, lease=SECONDS))
    publisher, metrics = Publisher(broker, Identity(name, "scripted")), Metrics()
    allowed = AllowedBuckets.read([f"{BUCKET}/in", f"acme={BUCKET}/acme"])
    store = FetchConfig(max_bytes=1 << 20, allowed=allowed)
    async with (
        running_web(authority.trust, authority.server(HOST)) as web,
        Fetcher(store, https=_https(web)) as fetcher,
    ):
        _furnish(web, cases)
        with ThreadPoolExecutor(2, "image") as pool:
            preparer = ImagePreparer(pool, _LIMITS, CropGeometry())
            budgets = Budgets(Budget(64 << 20), Budget(2), Budget(64 << 20), largest=1 << 20)
            executor = Executor(Images(fetcher, preparer, budgets), relay, publisher, Sampling(), metrics, keys=keys)
            ready = asyncio.Event()
            ready.set()
            consumer = Consumer(broker, executor, permits=Permits(16), metrics=metrics, ready=ready)
            await broker.open()
            running = [asyncio.create_task(part.run()) for part in (publisher, consumer)]
            try:
                yield
            finally:
                consumer.drain()
                await running[1]
                await consumer.finish(1.0)
                running[0].cancel()
                await asyncio.gather(*running, return_exceptions=True)
                await broker.close()


def _furnish(web: Web, cases: Sequence[Case]) -> None:
    web.paths = {path: response for case in cases for path, response in case.pages.items()}
    for case in cases:
        web.hosts |= case.hosts


def _https(web: Web) -> HttpsFetcher:
    config = HttpsConfig(hosts=("*.example",), max_bytes=1 << 20, timeout=3.0, connect_timeout=5.0, read_timeout=5.0)
    return HttpsFetcher(config, resolve=web.resolve, backend=web, trust=web.trust)


async def _put(redis: "Redis[bytes]", case: Case) -> str:
    fields = {"j": case.packed, **case.fields} if case.packed or not case.fields else dict(case.fields)
    entry: bytes = await redis.xadd(names.lane("interactive"), fields)  # type: ignore[arg-type]
    return entry.decode()


async def _result(redis: "Redis[bytes]", job_ids: Sequence[str]) -> Result:
    """Wait for the end of the one of these jobs that has one."""
    after = {names.log(job_id): "0" for job_id in job_ids}
    async with asyncio.timeout(SECONDS):
        while True:
            replies = await redis.xread(after, block=8_000)  # type: ignore[arg-type]
            assert replies, f"none of {job_ids} has an end"
            for log, entries in replies:
                after[log.decode()] = entries[-1][0].decode()
                if any(unpack_event(fields[b"e"]).__struct_config__.tag in _ENDS for _, fields in entries):
                    packed = await redis.get(names.result(log.decode().partition(":log:")[2]))
                    assert packed is not None
                    return unpack_result(packed)


def _places(case: Case, entry: str) -> list[str]:
    """Return the ids under which the result may be: the worker decides what it can read of an id."""
    job_ids = re.findall(rb'"id":"([A-Za-z0-9._:-]{1,128})"', case.packed[:1000])
    return list(
        dict.fromkeys([entry, *([case.job_id] if case.job_id else []), *(job_id.decode() for job_id in job_ids)])
    )
