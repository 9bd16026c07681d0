"""A worker's record in the registry of workers."""

from typing import Any, Final

import msgspec

__all__ = ["WorkerRecord", "read_record"]


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One worker, as it was when it last renewed its lease.

    `name` is the short name that jobs use for its model; a worker without one answers only jobs that name no model. A
    worker answers those only if `serves_default`. `model` is the loaded model, and `device` is cpu or cuda.
    `max_context` is in tokens, `started_at` in Unix milliseconds by Redis's clock. The speeds are averages since the
    previous renewal.
    """

    name: str | None = None
    serves_default: bool = True
    model: str | None = None
    device: str = ""
    skills: tuple[str, ...] = ()
    max_context: int | None = None
    lanes: tuple[str, ...] = ()
    permits: int = 0
    max_batch: int = 0
    in_flight: int = 0
    prompt_tokens_per_second: float = 0.0
    generated_tokens_per_second: float = 0.0
    host: str = ""
    pid: int = 0
    started_at: int = 0
    version: str = ""


_RECORD: Final = msgspec.json.Decoder(WorkerRecord)


def read_record(packed: bytes) -> WorkerRecord:
    """Read a worker's record; a value that is wrong, or of another version, is left at its default."""
    try:
        return _RECORD.decode(packed)
    except msgspec.ValidationError:
        pass
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return WorkerRecord()
    facts = msgspec.json.decode(packed)
    known = {name: value for name, value in facts.items() if _fits(name, value)} if isinstance(facts, dict) else {}
    return msgspec.convert(known, WorkerRecord)


def _fits(name: str, value: Any) -> bool:
    try:
        msgspec.convert({name: value}, WorkerRecord)
    except msgspec.ValidationError:
        return False
    return True
