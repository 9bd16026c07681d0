"""The composition root: builds every part of a worker from its configuration, and runs them until told to stop."""

import asyncio
import contextlib
import os
import secrets
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import structlog

from worker.boot import boot
from worker.config import WorkerConfig
from worker.engine.engine import Engine
from worker.engine.request import EnginePort, Sampling
from worker.engine.thread import EngineThread
from worker.images import ImageLimits
from worker.jobs.broker import Broker
from worker.jobs.consumer import Consumer
from worker.jobs.executor import Executor, Studio
from worker.jobs.fetch import FetchConfig, Fetcher
from worker.jobs.https_fetch import HttpsConfig, HttpsFetcher
from worker.jobs.lease import LeaseKeeper
from worker.jobs.publisher import Identity, Publisher
from worker.jobs.redis_broker import BrokerConfig, RedisBroker
from worker.jobs.relay import Relay
from worker.metrics import Metrics
from worker.model.moondream import Moondream

__all__ = ["serve"]

log = structlog.get_logger(__name__)


def serve(config: WorkerConfig) -> None:
    """Load the model, warm the engine up and claim jobs, until SIGTERM or SIGINT; raises `WorkerError`."""
    engine, model = boot(config)
    asyncio.run(_serve(config, engine, model))


@dataclass(frozen=True, slots=True)
class _Parts:
    broker: Broker
    engine: EnginePort
    relay: Relay
    publisher: Publisher
    consumer: Consumer


async def _serve(config: WorkerConfig, engine: Engine, model: Moondream) -> None:
    identity = Identity(worker=_instance_name(), model=model.name)
    relay = Relay(asyncio.get_running_loop())
    thread = EngineThread(engine, relay.deliver)
    relay.attach(thread)
    broker = RedisBroker(_broker_config(config, identity.worker))
    publisher = Publisher(broker, identity)
    metrics = Metrics()
    if config.metrics_port:
        metrics.serve(config.metrics_port)
    with (
        ThreadPoolExecutor(config.image_threads or os.cpu_count(), "image") as pool,
        Fetcher(_fetch(config), https=_https(config)) as fetcher,
    ):
        studio = Studio(pool, _image_limits(config), model.config.vision.geometry)
        executor = Executor(fetcher, studio, relay, publisher, _sampling(config), metrics, config.keys)
        consumer = Consumer(broker, executor, permits=config.free_permits, metrics=metrics)
        thread.start()
        try:
            await _claim(config, identity, _Parts(broker, thread, relay, publisher, consumer))
        finally:
            thread.stop()
            await broker.close()


async def _claim(config: WorkerConfig, identity: Identity, parts: _Parts) -> None:
    """Open the queue, claim until a signal or the engine's end, then finish what is in flight."""
    await parts.broker.open()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, parts.consumer.drain)
    lease = LeaseKeeper(parts.broker, parts.engine, lease=config.lease_seconds)
    keeping = asyncio.create_task(lease.run())
    publishing = asyncio.create_task(parts.publisher.run())
    keeping.add_done_callback(lambda ended: _engine_ended(parts) if not ended.cancelled() else None)
    log.info("ready", worker=identity.worker, model=identity.model, lanes=config.lanes, permits=config.free_permits)
    try:
        with _ready(config.ready_file, identity.worker):
            await parts.consumer.run()
        log.info("draining", grace_seconds=config.drain_seconds)
        await parts.consumer.finish(config.drain_seconds)
        if keeping.done():
            keeping.result()  # the engine's end is the worker's
    finally:
        for task in (keeping, publishing):
            task.cancel()
        await asyncio.gather(keeping, publishing, return_exceptions=True)
    log.info("stopped", worker=identity.worker)


def _engine_ended(parts: _Parts) -> None:
    log.error("the engine has ended: what it held fails, and the worker stops")
    parts.relay.fail()
    parts.consumer.drain()


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


def _instance_name() -> str:
    """Name this process so that no other, nor a later one, has the same name."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def _broker_config(config: WorkerConfig, worker: str) -> BrokerConfig:
    return BrokerConfig(
        url=config.redis_url.get_secret_value(),
        worker=worker,
        lanes=config.lanes,
        partitions=config.partitions,
        lease=config.lease_seconds,
        result_ttl=config.result_ttl_seconds,
        log_ttl=config.log_ttl_seconds,
    )


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
