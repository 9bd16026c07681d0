"""The live models: the workers' records, grouped by the name that jobs use."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stoop_schemas.worker import WorkerRecord

__all__ = ["LiveModel", "known_models", "live_models"]


@dataclass(frozen=True, slots=True)
class LiveModel:
    """One model and its live workers.

    `name` goes into a job's `model`; None stands for workers that answer only jobs without one. `default` is true if
    the model answers jobs that name none. `loaded` are the checkpoints. `max_context` is the smallest of its workers',
    in tokens; None if no worker reports it. `permits` is the number of jobs that all its workers run at once.
    """

    name: str | None
    default: bool
    workers: int
    skills: tuple[str, ...]
    max_context: int | None
    loaded: tuple[str, ...]
    permits: int
    in_flight: int


def live_models(records: Iterable[WorkerRecord]) -> list[LiveModel]:
    """Gather the records by their names, the default model first."""
    by_name: dict[str | None, list[WorkerRecord]] = {}
    for record in records:
        by_name.setdefault(record.name, []).append(record)
    models = [_gathered(name, own) for name, own in by_name.items()]
    return sorted(models, key=lambda model: (not model.default, model.name or ""))


def known_models(registered: Iterable[tuple[WorkerRecord, bool]]) -> list[LiveModel]:
    """Gather the records of live workers, then those of others as models without a worker.

    Each record comes with whether its worker is alive.
    """
    registered = list(registered)
    live = live_models(record for record, alive in registered if alive)
    names = {model.name for model in live}
    rest = live_models(record for record, alive in registered if not alive and record.name not in names)
    return live + [replace(model, workers=0, permits=0, in_flight=0) for model in rest]


def _gathered(name: str | None, records: Sequence[WorkerRecord]) -> LiveModel:
    contexts = [record.max_context for record in records if record.max_context is not None]
    return LiveModel(
        name=name,
        default=any(record.serves_default for record in records),
        workers=len(records),
        skills=tuple(dict.fromkeys(skill for record in records for skill in record.skills)),
        max_context=min(contexts, default=None),
        loaded=tuple(dict.fromkeys(record.model for record in records if record.model)),
        permits=sum(record.permits for record in records),
        in_flight=sum(record.in_flight for record in records),
    )
