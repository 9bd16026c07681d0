"""Everything the worker raises on purpose.

WorkerError
├── ConfigError            the configuration cannot work; says what to change
├── CheckpointError        the model folder or file is not what the loader reads
├── ImageError
│   ├── ImageNotFound
│   ├── ImageForbidden
│   ├── ImageTooLarge
│   ├── ImageUndecodable
│   ├── ImageTimeout
│   ├── ImageAddressInvalid    not an address this worker reads
│   └── StorageUnavailable
├── QueueUnavailable       Redis does not answer; the same call may work later
└── EngineFault            the engine has ended and takes nothing
    └── EngineCrashed          it ended with the job in it

`jobs/outcome.py` maps each to one failure code.
"""

__all__ = [
    "CheckpointError",
    "ConfigError",
    "EngineCrashed",
    "EngineFault",
    "ImageAddressInvalid",
    "ImageError",
    "ImageForbidden",
    "ImageNotFound",
    "ImageTimeout",
    "ImageTooLarge",
    "ImageUndecodable",
    "QueueUnavailable",
    "StorageUnavailable",
    "WorkerError",
]


class WorkerError(Exception):
    """The worker could not do what was asked."""


class ConfigError(WorkerError):
    """The configuration cannot work."""


class CheckpointError(WorkerError):
    """The model folder or file is not what the loader reads."""


class ImageError(WorkerError):
    """The image of one job could not be had."""


class ImageNotFound(ImageError):
    """There is nothing at the image's address."""


class ImageForbidden(ImageError):
    """The worker may not read the image."""


class ImageTooLarge(ImageError):
    """The image is over the limit on bytes or pixels."""


class ImageUndecodable(ImageError):
    """The bytes are not an image of an accepted format."""


class ImageTimeout(ImageError):
    """The image did not arrive in time."""


class ImageAddressInvalid(ImageError):
    """The image's address is of a kind this worker does not read."""


class StorageUnavailable(ImageError):
    """The object store answered with an error, or not at all."""


class QueueUnavailable(WorkerError):
    """Redis does not answer; the same call may work later."""


class EngineFault(WorkerError):
    """The engine has ended and takes nothing; the job may run elsewhere."""


class EngineCrashed(EngineFault):
    """The engine ended with the job in it, which may be why."""
