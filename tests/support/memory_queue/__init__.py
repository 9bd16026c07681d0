"""The queue in memory: the same `Broker` and `Transport`, over one shared `MemoryQueue`, for tests without Redis.

    queue = MemoryQueue()
    broker, transport = MemoryBroker(queue, "worker-1"), MemoryTransport(queue)

It behaves like the Redis adapters, and the same contract tests are run on it. It has one partition.
"""

from tests.support.memory_queue.broker import MemoryBroker
from tests.support.memory_queue.store import DeadLetter, Entry, MemoryQueue, Record
from tests.support.memory_queue.transport import MemoryTransport

__all__ = ["DeadLetter", "Entry", "MemoryBroker", "MemoryQueue", "MemoryTransport", "Record"]
