"""The operator's view of the queue: counts, workers, dead letters, paused lanes.

port.py            the port and its values
letters.py         reads dead letters
redis_operator.py  the port on Redis; only `lanes` scans all keys
scripts/           the Lua scripts
"""

from stoop.operator.port import (
    DeadLetter,
    HeldJob,
    LaneStatus,
    LivingWorker,
    MemoryUse,
    Operator,
    QueueStatus,
    Redriven,
    TenantStatus,
)

__all__ = [
    "DeadLetter",
    "HeldJob",
    "LaneStatus",
    "LivingWorker",
    "MemoryUse",
    "Operator",
    "QueueStatus",
    "Redriven",
    "TenantStatus",
]
