"""The composition root: builds every part of a worker from its configuration, and runs them until a signal stops it."""

import asyncio
import contextlib
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, fields

import structlog
from pydantic import SecretStr

from stoop_worker.adapter_parts import adapter_settings, running_adapters
from stoop_worker.allocator import return_large_blocks
from stoop_worker.celery.dialect import CeleryDialect, CelerySettings
from stoop_worker.config import WorkerConfig
from stoop_worker.endpoints import serving
from stoop_worker.engine.request import Sampling
from stoop_worker.engine_process.child import ENGINE_PROGRAM
from stoop_worker.engine_process.pixels import SharedPixels
from stoop_worker.engine_process.protocol import EngineSettings, Ready
from stoop_worker.engine_process.supervisor import SupervisedEngine, Supervision
from stoop_worker.garbage import keep_what_is_loaded
from stoop_worker.health import Health
from stoop_worker.jobs.consumer import Consumer, Permits
from stoop_worker.jobs.control import Control
from stoop_worker.jobs.executor import Executor
from stoop_worker.jobs.lease import LeaseKeeper
from stoop_worker.jobs.outage import RedisOutage
from stoop_worker.jobs.publisher import Identity, Publisher
from stoop_worker.jobs.redis.broker import BrokerConfig, RedisBroker
from stoop_worker.jobs.relay import Relay
from stoop_worker.media_parts import running_media, running_outputs
from stoop_worker.metrics import Metrics
from stoop_worker.registration import Registration, describe, enter_registry
from stoop_worker.shutdown import Shutdown
from stoop_worker.tracing import running_spans
from stoop_worker.vital import VitalParts, cancel_until_ended

__all__ = ["serve"]

log = structlog.get_logger(__name__)

_SWITCH_SECONDS = 0.0005
"""The time after which a thread that fetches or decodes hands the interpreter to the event loop, which all jobs need.

With Python's 5 ms, each of the dozen turns that an interactive job takes of the loop would wait that long for bulk.
"""


def serve(config: WorkerConfig, *, program: Sequence[str] = ENGINE_PROGRAM) -> None:
    """Start the engine, claim jobs and run them until SIGTERM or SIGINT; raises `WorkerError`.

    It raises `EngineFault` if the engine ended too often. `program` is the command line of the engine's process.
    """
    return_large_blocks()
    sys.setswitchinterval(_SWITCH_SECONDS)
    asyncio.run(_serve(config, program))


@dataclass(frozen=True, slots=True)
class _Parts:
    identity: Identity
    broker: RedisBroker
    engine: SupervisedEngine
    publisher: Publisher
    consumer: Consumer
    record: Callable[[], bytes]
    lease: LeaseKeeper
    control: Control
    dialect: CeleryDialect

    async def open(self) -> None:
        """Connect to the queue and enter the registry of workers, which must list a worker that is ready."""
        await self.broker.open()
        await enter_registry(self.broker, self.record)


async def _serve(config: WorkerConfig, program: Sequence[str]) -> None:
    shutdown, metrics = Shutdown(grace=config.drain_seconds), Metrics()
    relay = Relay(asyncio.get_running_loop())

    def on_engine_lost(request_ids: Sequence[str]) -> None:
        metrics.engine_fault()
        relay.on_engine_lost(request_ids)

    outage = RedisOutage()
    engine = SupervisedEngine(
        _engine_settings(config),
        relay.deliver,
        on_engine_lost,
        _supervision(config),
        program,
        shared_pixels=SharedPixels(config.max_decoded_bytes),
    )
    relay.attach(engine)
    metrics.watch_engine(lambda: engine.figures)
    health = Health(engine, outage, lease=config.lease_seconds, ready_file=config.ready_file)
    health_task = asyncio.create_task(health.run(), name="health")
    try:
        with serving(config.metrics_port, metrics.registry, health, host=config.metrics_host):
            ready = await shutdown.unless_asked(engine.start())
            if ready is None:
                return
            health.started()
            metrics.loaded(ready.model, ready.device)
            async with _built(config, ready, relay, engine, metrics, outage) as parts:
                await shutdown.unless_asked(parts.open())
                if not shutdown.asked:
                    keep_what_is_loaded()
                    log.info(
                        "ready",
                        worker=parts.identity.worker,
                        model=ready.model,
                        lanes=config.served_lanes,
                        permits=config.permits_on(ready.device),
                    )
                    shutdown.on_signals(parts.consumer.drain, parts.consumer.stop_now)
                    await _claim(config, parts, health)
                log.info("stopped", worker=parts.identity.worker)
    finally:
        await cancel_until_ended({health_task})
        await engine.stop()
        shutdown.close()


@contextlib.asynccontextmanager
async def _built(
    config: WorkerConfig, ready: Ready, relay: Relay, engine: SupervisedEngine, metrics: Metrics, outage: RedisOutage
) -> AsyncIterator[_Parts]:
    """Build everything that stands between the queue and the engine."""
    identity = Identity(worker=_instance_name(), model=ready.model)
    url = config.redis_url.get_secret_value()
    broker = RedisBroker(_broker_config(config, identity.worker), outage)
    publisher = Publisher(broker, identity)
    permits = _permits(config, ready.device)
    async with contextlib.AsyncExitStack() as running:
        spans = await running.enter_async_context(running_spans(identity, url))
        images, recordings = await running.enter_async_context(
            running_media(config, ready, engine.shared_pixels, metrics)
        )
        adapters = await running.enter_async_context(running_adapters(config))
        outputs = running.enter_context(running_outputs(config))
        dialect = CeleryDialect(
            _celery(config, permits.count),
            identity.worker,
            keys=config.keys,
            in_flight=lambda: consumer.deliveries,
            period=config.lease_seconds / 3,
            outage=outage,
        )
        executor = Executor(
            images,
            relay,
            publisher,
            _sampling(config, ready),
            metrics,
            attempts=config.max_attempts,
            keys=config.keys,
            dialect=dialect,
            model=config.name,
            adapters=adapters,
            recordings=recordings,
            spans=spans,
            outputs=outputs,
        )
        consumer = Consumer(broker, executor, permits=permits, metrics=metrics, ready=engine.running)
        registration = Registration(describe(config, ready, permits.count))

        def record() -> bytes:
            return registration.encode(broker.now(), consumer.in_flight, engine.figures)

        lease = LeaseKeeper(
            broker,
            engine,
            lease=config.lease_seconds,
            hang=engine.hang_seconds,
            record=record,
            break_off=consumer.break_off,
        )
        control = Control(url, consumer.cancel, outage=outage)
        try:
            yield _Parts(identity, broker, engine, publisher, consumer, record, lease, control, dialect)
        finally:
            await broker.close()


async def _claim(config: WorkerConfig, parts: _Parts, health: Health) -> None:
    """Claim until a signal or the end of a vital part, then finish the jobs in flight."""
    vital = VitalParts(
        {
            "engine": parts.engine.run(),
            "lease": parts.lease.run(),
            "publisher": parts.publisher.run(),
            "control": parts.control.run(),
            "dialect": parts.dialect.run(),
        },
        parts.consumer.stop_now,
    )
    try:
        try:
            health.claims_as(parts.identity.worker)
            await parts.consumer.run()
        finally:
            health.claims_as(None)
            log.info("draining", grace_seconds=config.drain_seconds)
            await parts.consumer.finish(config.drain_seconds)
            await parts.dialect.finish()
        vital.check()
    finally:
        await vital.end()


def _permits(config: WorkerConfig, device: str) -> Permits:
    """Keep an eighth of the permits for the first of several lanes."""
    count = config.permits_on(device)
    return Permits(count, min(count - 1, max(1, count // 8)) if len(config.lanes) > 1 else 0)


def _instance_name() -> str:
    """Name this process so that no other, nor a later one, has the same name."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def _engine_settings(config: WorkerConfig) -> EngineSettings:
    given = {field.name: getattr(config, field.name) for field in fields(EngineSettings) if hasattr(config, field.name)}
    chosen = config.chosen
    found = {
        "model": chosen.source,
        "revision": chosen.revision,
        "licence": chosen.entry.licence if chosen.entry else None,
        "max_context": config.max_context or chosen.context,
        **adapter_settings(config),
    }
    return EngineSettings(**(given | found))


def _supervision(config: WorkerConfig) -> Supervision:
    return Supervision(config.max_engine_faults, config.hang_seconds, config.restart_seconds)


def _broker_config(config: WorkerConfig, worker: str) -> BrokerConfig:
    return BrokerConfig(
        url=config.redis_url.get_secret_value(),
        worker=worker,
        lanes=config.lanes,
        models=config.models,
        partitions=config.partitions,
        lease=config.lease_seconds,
        result_ttl=config.result_ttl_seconds,
        lane_result_ttls=config.lane_result_ttls,
        log_ttl=config.log_ttl_seconds,
        tenant_limit=config.tenant_limit,
    )


def _celery(config: WorkerConfig, permits: int) -> CelerySettings:
    return CelerySettings(
        mode=config.celery,
        redis_url=config.redis_url.get_secret_value(),
        broker=_secret(config.celery_broker),
        backend=_secret(config.celery_backend),
        routes=config.routes,
        ttl=config.result_ttl_seconds,
        permits=permits,
        # it signs what it sends to our own queues
        environment={"STOOP_SIGNING_KEYS": _secret(config.signing_keys) or ""},
    )


def _secret(given: SecretStr | None) -> str | None:
    return given.get_secret_value() if given else None


def _sampling(config: WorkerConfig, ready: Ready) -> Sampling:
    """Return the defaults for jobs: configured values, else the catalog's, else the model's own, else the worker's."""
    settings = {field.name: getattr(config, field.name) for field in fields(Sampling) if hasattr(config, field.name)}
    own = {**ready.sampling, **(config.chosen.entry.sampling if config.chosen.entry else {})}
    return Sampling(
        **{**settings, **{name: value for name, value in own.items() if name not in config.model_fields_set}}
    )
