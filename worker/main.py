"""The composition root: builds every part of a worker from its configuration, and runs them until told to stop."""

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path

import structlog
from pydantic import SecretStr

from worker.config import WorkerConfig
from worker.dialect import CeleryDialect, CelerySettings
from worker.engine.request import Sampling
from worker.engine_process.border import EngineSettings, Ready
from worker.engine_process.child import ENGINE_PROGRAM
from worker.engine_process.engine_process import EngineProcess, Supervision
from worker.engine_process.pixels import Trays
from worker.errors import WorkerError
from worker.images import ImageLimits
from worker.jobs.consumer import Consumer
from worker.jobs.control import Control
from worker.jobs.executor import Executor, Studio
from worker.jobs.fetch import FetchConfig, Fetcher
from worker.jobs.https_fetch import HttpsConfig, HttpsFetcher
from worker.jobs.lease import LeaseKeeper
from worker.jobs.publisher import Identity, Publisher
from worker.jobs.redis_broker import BrokerConfig, RedisBroker
from worker.jobs.relay import Relay
from worker.metrics import Metrics
from worker.roster import Entry
from worker.shutdown import Shutdown

__all__ = ["serve"]

log = structlog.get_logger(__name__)

_MOST_IMAGE_THREADS = 8


def serve(config: WorkerConfig, *, program: Sequence[str] = ENGINE_PROGRAM) -> None:
    """Start the engine, claim jobs and run them until SIGTERM or SIGINT; raises `WorkerError`.

    `EngineFault` if the engine ended too often. `program` is the command line of the engine's process.
    """
    asyncio.run(_serve(config, program))


@dataclass(frozen=True, slots=True)
class _Parts:
    identity: Identity
    engine: EngineProcess
    publisher: Publisher
    consumer: Consumer
    lease: LeaseKeeper
    control: Control
    dialect: CeleryDialect


async def _serve(config: WorkerConfig, program: Sequence[str]) -> None:
    shutdown, metrics = Shutdown(grace=config.drain_seconds), Metrics()
    relay = Relay(asyncio.get_running_loop())

    def lose(request_ids: Sequence[str]) -> None:
        metrics.engine_fault()
        relay.lose(request_ids)

    engine = EngineProcess(
        _engine_settings(config),
        relay.deliver,
        lose,
        _supervision(config),
        program,
        trays=Trays(config.free_permits),
    )
    relay.attach(engine)
    metrics.watch_engine(lambda: engine.figures)
    try:
        if config.metrics_port:
            metrics.serve(config.metrics_port)
        ready = await shutdown.unless_asked(engine.start())
        if ready is None:
            return
        async with _built(config, ready, relay, engine, metrics) as parts:
            shutdown.on_signals(parts.consumer.drain, parts.consumer.hurry)
            await _claim(config, parts)
    finally:
        await engine.stop()
        shutdown.close()


@contextlib.asynccontextmanager
async def _built(
    config: WorkerConfig, ready: Ready, relay: Relay, engine: EngineProcess, metrics: Metrics
) -> AsyncIterator[_Parts]:
    """Build everything that stands between the queue and the engine."""
    identity = Identity(worker=_instance_name(), model=ready.model)
    broker = RedisBroker(_broker_config(config, identity.worker))
    publisher = Publisher(broker, identity)
    with (
        ThreadPoolExecutor(config.image_threads or _image_threads(), "image") as pool,
        Fetcher(_fetch(config), https=_https(config)) as fetcher,
    ):
        dialect = CeleryDialect(
            _celery(config),
            identity.worker,
            keys=config.keys,
            in_flight=lambda: consumer.deliveries,
            period=config.lease_seconds / 3,
        )
        studio = Studio(
            pool, _image_limits(config), ready.geometry if ready.device == "cpu" else None, engine.trays.empty
        )
        executor = Executor(
            fetcher,
            studio,
            relay,
            publisher,
            _sampling(config),
            metrics,
            attempts=config.max_attempts,
            keys=config.keys,
            dialect=dialect,
        )
        consumer = Consumer(broker, executor, permits=config.free_permits, metrics=metrics, ready=engine.running)
        entry = Entry(identity, config.lanes, config.free_permits)
        lease = LeaseKeeper(
            broker,
            engine,
            lease=config.lease_seconds,
            hang=engine.patience,
            tell=lambda: entry.tell(broker.now(), consumer.in_flight),
            break_off=consumer.break_off,
        )
        control = Control(config.redis_url.get_secret_value(), consumer.cancel)
        try:
            await broker.open()
            log.info("ready", worker=identity.worker, model=ready.model, lanes=config.lanes, permits=entry.permits)
            yield _Parts(identity, engine, publisher, consumer, lease, control, dialect)
            log.info("stopped", worker=identity.worker)
        finally:
            await broker.close()


async def _claim(config: WorkerConfig, parts: _Parts) -> None:
    """Claim until a signal or the end of a part that must not end, then finish what is in flight."""
    vital = {
        asyncio.create_task(running, name=name)
        for name, running in (
            ("engine", parts.engine.run()),
            ("lease", parts.lease.run()),
            ("publisher", parts.publisher.run()),
            ("control", parts.control.run()),
            ("dialect", parts.dialect.run()),
        )
    }
    for task in vital:
        task.add_done_callback(lambda ended: _ended(ended, parts))
    try:
        try:
            with _ready(config.ready_file, parts.identity.worker):
                await parts.consumer.run()
        finally:
            log.info("draining", grace_seconds=config.drain_seconds)
            await parts.consumer.finish(config.drain_seconds)
            await parts.dialect.finish()
        for task in vital:
            if task.done():
                task.result()  # its end is the worker's
    finally:
        await _end(vital)


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended: Python 3.11 loses a cancellation that meets the end of a `wait_for`."""
    left = tasks
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=0.5)


def _ended(task: asyncio.Task[None], parts: _Parts) -> None:
    if task.cancelled():
        return
    error = task.exception()
    known = isinstance(error, WorkerError)
    said = str(error) if known else type(error).__name__
    log.error("the worker cannot go on", part=task.get_name(), error=said, exc_info=None if known else error)
    parts.consumer.hurry()


@contextlib.contextmanager
def _ready(path: Path | None, worker: str) -> Iterator[None]:
    """Keep a file with the worker's name while jobs are claimed, for health checks."""
    if path is None:
        yield
        return
    path.write_text(worker + "\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _image_threads() -> int:
    """Use the cores this process may use, but not all of a large machine: each thread may hold a whole image."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_IMAGE_THREADS)


def _instance_name() -> str:
    """Name this process so that no other, nor a later one, has the same name."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def _engine_settings(config: WorkerConfig) -> EngineSettings:
    return EngineSettings(**{field.name: getattr(config, field.name) for field in fields(EngineSettings)})


def _supervision(config: WorkerConfig) -> Supervision:
    return Supervision(config.max_engine_faults, config.hang_seconds, config.restart_seconds)


def _broker_config(config: WorkerConfig, worker: str) -> BrokerConfig:
    return BrokerConfig(
        url=config.redis_url.get_secret_value(),
        worker=worker,
        lanes=config.lanes,
        partitions=config.partitions,
        lease=config.lease_seconds,
        result_ttl=config.result_ttl_seconds,
        log_ttl=config.log_ttl_seconds,
        tenant_limit=config.tenant_limit,
    )


def _celery(config: WorkerConfig) -> CelerySettings:
    return CelerySettings(
        mode=config.celery,
        redis_url=config.redis_url.get_secret_value(),
        broker=_secret(config.celery_broker),
        backend=_secret(config.celery_backend),
        routes=config.routes,
        ttl=config.result_ttl_seconds,
        permits=config.free_permits,
        # it signs what it sends to our own queues
        environment={"STOOP_SIGNING_KEYS": _secret(config.signing_keys) or ""},
    )


def _secret(given: SecretStr | None) -> str | None:
    return given.get_secret_value() if given else None


def _fetch(config: WorkerConfig) -> FetchConfig:
    return FetchConfig(
        endpoint=config.s3_endpoint,
        region=config.s3_region,
        path_style=config.s3_path_style,
        allowed=config.allowed,
        max_bytes=config.max_image_bytes,
        timeout=config.fetch_timeout_seconds,
        concurrency=config.fetch_concurrency,
    )


def _https(config: WorkerConfig) -> HttpsFetcher | None:
    if not config.allow_https:
        return None
    return HttpsFetcher(
        HttpsConfig(
            hosts=config.https_hosts,
            max_bytes=config.max_image_bytes,
            timeout=config.fetch_timeout_seconds,
        )
    )


def _image_limits(config: WorkerConfig) -> ImageLimits:
    return ImageLimits(max_bytes=config.max_image_bytes, max_pixels=config.max_image_pixels)


def _sampling(config: WorkerConfig) -> Sampling:
    return Sampling(
        temperature=config.temperature,
        top_p=config.top_p,
        max_tokens=config.max_tokens,
        max_objects=config.max_objects,
    )
