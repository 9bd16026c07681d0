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
from producer.image_source import EncodedImage
from producer.jobs import answer

__all__ = [
    "AsyncClient",
    "Client",
    "ConfigError",
    "EncodedImage",
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
    "answer",
]
