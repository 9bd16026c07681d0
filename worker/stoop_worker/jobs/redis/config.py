"""The address of the queue, and the part of it that one worker serves."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from stoop_schemas import names
from stoop_worker.errors import ConfigError
from stoop_worker.jobs.redis.claims import Part

__all__ = ["BrokerConfig"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The address of the queue and the part of it that one worker serves.

    `lanes` are claimed from first to last, the last one having a minimum share. `models` say whose lanes these are: a
    short name for `<model>:<lane>`, None for the lanes without a model. `worker` must be new for each start of a
    process. Durations are in seconds: a worker counts as dead after `lease` without `extend`; results are kept for
    `result_ttl`, those of a lane in `lane_result_ttls` for the time given there, and the events of an ended job for
    `log_ttl`. At most `small_batch` jobs whose worker died under them run
    together. A tenant has at most `tenant_limit` jobs of a lane in flight, in all workers; None: no limit.
    """

    url: str = field(repr=False)
    worker: str
    lanes: tuple[str, ...] = names.DEFAULT_LANES
    models: tuple[str | None, ...] = (None,)
    partitions: tuple[int, ...] = (0,)
    lease: float = 15.0
    result_ttl: float = 86_400.0
    lane_result_ttls: Mapping[str, float] = field(default_factory=dict)
    log_ttl: float = 3_600.0
    small_batch: int = 16
    tenant_limit: int | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts in the order in which they are claimed from."""
        return tuple(Part(partition, model) for partition in self.partitions for model in self.models)

    def lanes_of(self, part: Part) -> tuple[str, ...]:
        """Name the lanes of one part, first to last."""
        return tuple(names.model_lane(lane, part.model) for lane in self.lanes)

    def streams(self, part: Part) -> list[str]:
        """Name the streams that this worker claims from in one part, those of the quarantine last."""
        own = [names.lane(lane, part.partition) for lane in self.lanes_of(part)]
        return own + [names.quarantine(kind, part.partition, part.model) for kind in names.QUARANTINES]

    def __post_init__(self) -> None:
        for name in (self.worker, *self.lanes):
            if not _NAME.fullmatch(name):
                raise ConfigError(f"{name!r} cannot name a lane or worker: use A-Z a-z 0-9 . _ : - (at most 128)")
        if not self.lanes or len(set(self.lanes)) < len(self.lanes):
            raise ConfigError("lanes: name at least one, and each once")
        if any(names.is_reserved(name) for name in self.lanes):
            raise ConfigError("lanes: every worker serves the quarantine by itself, so do not name it")
        if not self.models or len(set(self.models)) < len(self.models):
            raise ConfigError("models: name at least one, and each once")
        if not self.partitions or len(set(self.partitions)) < len(self.partitions):
            raise ConfigError("partitions: name at least one, and each once")
        if min(self.lease, self.result_ttl, self.log_ttl, *self.lane_result_ttls.values()) < 0.001:
            raise ConfigError("lease, log_ttl and the times of results must be at least a millisecond")
        if self.small_batch < 1 or (self.tenant_limit is not None and self.tenant_limit < 1):
            raise ConfigError("small_batch and tenant_limit must be at least 1")
