"""What an operator sees of the queue and does to it: counts, workers, dead letters, paused lanes."""

from producer.operator.port import DeadLetter, LaneStatus, LivingWorker, Operator, QueueStatus, Redriven

__all__ = ["DeadLetter", "LaneStatus", "LivingWorker", "Operator", "QueueStatus", "Redriven"]
