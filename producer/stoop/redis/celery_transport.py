"""A kombu transport: messages for `stoop.*` queues go to Stoop's lanes, all others to kombu's own Redis transport.

It only publishes to these queues: a consumer gets an error that names the Stoop worker.
"""

import base64
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import resources
from typing import Any, Final

from kombu.exceptions import OperationalError
from kombu.transport import redis as stock

from stoop.config import ProducerConfig
from stoop_schemas import celery as dialect
from stoop_schemas import names
from stoop_schemas.job import MODEL_PATTERN

__all__ = ["Channel", "SentinelChannel", "SentinelTransport", "Transport"]

_MODEL: Final = re.compile(MODEL_PATTERN)
_PARK: Final = (resources.files("stoop.redis") / "scripts" / "park.lua").read_text()


class _Lanes:
    """A channel's work for the queues that are lanes; the class beside it does the rest."""

    def _put(self, queue: str, message: dict[str, Any], **options: Any) -> None:
        lane = dialect.lane_of(queue)
        if lane is None:
            super()._put(queue, message, **options)  # type: ignore[misc]
            return
        command = _command(lane, message)
        batch = options.get("_publish_batch")
        if batch is not None:
            batch.add("execute_command", *command)
            return
        with self.conn_or_acquire() as client:  # type: ignore[attr-defined]
            client.execute_command(*command)

    def _size(self, queue: str) -> int:
        lane = dialect.lane_of(queue)
        if lane is None:
            return int(super()._size(queue))  # type: ignore[misc]
        with self.conn_or_acquire() as client:  # type: ignore[attr-defined]
            return int(client.execute_command("XLEN", names.lane(lane)))

    def _get(self, queue: str, *arguments: Any) -> Any:
        _refuse(queue, "read from")
        return super()._get(queue, *arguments)  # type: ignore[misc]

    def _purge(self, queue: str) -> int:
        _refuse(queue, "purge")
        return int(super()._purge(queue))  # type: ignore[misc]

    def basic_consume(self, queue: str, *arguments: Any, **options: Any) -> Any:
        """Consume from a stock queue; raises `OperationalError` for a lane."""
        _refuse(queue, "read from")
        return super().basic_consume(queue, *arguments, **options)  # type: ignore[misc]


class Channel(_Lanes, stock.Channel):
    """A channel to one Redis server."""


class SentinelChannel(_Lanes, stock.SentinelChannel):
    """A channel to the master that Sentinels know of."""


class Transport(stock.Transport):
    """The `broker_transport` of a Celery application whose broker is the queue's Redis."""

    Channel = Channel


class SentinelTransport(stock.SentinelTransport):
    """The same transport, for a Redis that Sentinels watch."""

    Channel = SentinelChannel


def _refuse(queue: str, verb: str) -> None:
    if dialect.lane_of(queue) is not None:
        raise OperationalError(f"the queue {queue} belongs to Stoop's workers: Celery can send to it, not {verb} it")


def _command(lane: str, message: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the one command of Redis that puts the message into the lane, or keeps it until its time."""
    if names.is_reserved(lane):
        raise ValueError(f"only Stoop's workers put jobs into the lane {lane}: send the task to another queue")
    job_id, eta = message["headers"]["id"], message["headers"].get("eta")
    model = _model(message)
    lane = names.model_lane(lane, model)
    packed = json.dumps(message, separators=(",", ":")).encode()
    if keys := ProducerConfig().keys:
        packed = keys.sign(packed)
    due = _in_ms(eta) if eta else 0
    if due > datetime.now(UTC).timestamp() * 1000:
        keys_and_args = (names.delayed(), names.job(job_id), job_id, lane, due, packed, model or "")
        return ("EVAL", _PARK, 2, *keys_and_args)
    return ("XADD", names.lane(lane), "*", "id", job_id, dialect.FIELD, packed)


def _model(message: Mapping[str, Any]) -> str | None:
    """Return the model that the task's arguments name; None for one that no lane can have, which its worker refuses."""
    try:
        encoded = message["body"]
        is_base64 = message.get("properties", {}).get("body_encoding") == "base64"
        _, kwargs, _ = json.loads(base64.b64decode(encoded) if is_base64 else encoded)
        named = kwargs.get("model")
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return named if isinstance(named, str) and _MODEL.fullmatch(named) else None


def _in_ms(eta: str) -> int:
    moment = datetime.fromisoformat(eta)
    return round(1000 * (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
