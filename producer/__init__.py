"""What back ends and people use to submit jobs and read their answers."""

from producer.blocking import Client
from producer.client import AsyncClient
from producer.errors import (
    ConfigError,
    IdempotencyConflict,
    ImageUnreadable,
    InvalidJob,
    JobCancelled,
    JobExpired,
    JobFailed,
    JobRestarted,
    NotAQueue,
    NotFound,
    QueueFull,
    QueueUnavailable,
    StoopError,
    TimedOut,
    UploadFailed,
)

__all__ = [
    "AsyncClient",
    "Client",
    "ConfigError",
    "IdempotencyConflict",
    "ImageUnreadable",
    "InvalidJob",
    "JobCancelled",
    "JobExpired",
    "JobFailed",
    "JobRestarted",
    "NotAQueue",
    "NotFound",
    "QueueFull",
    "QueueUnavailable",
    "StoopError",
    "TimedOut",
    "UploadFailed",
]
