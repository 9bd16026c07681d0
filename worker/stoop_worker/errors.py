"""Everything the worker raises on purpose.

WorkerError
├── ConfigError            the configuration cannot work; the message names the change to make
├── CheckpointError        the loader cannot read the model folder or file
├── ImageError
│   ├── ImageNotFound
│   ├── ImageForbidden
│   ├── ImageTooLarge
│   ├── ImageUndecodable
│   ├── ImageTimeout
│   ├── ImageAddressInvalid    an address of a kind that this worker does not read
│   └── StorageUnavailable
├── AudioError
│   ├── AudioNotFound
│   ├── AudioForbidden
│   ├── AudioTooLarge
│   ├── AudioUndecodable
│   ├── AudioTimeout
│   └── AudioAddressInvalid    an address of a kind that this worker does not read
├── QueueUnavailable       Redis does not answer; the same call may work later
├── QueueFault             Redis answers with an error that a retry cannot fix
├── PartEnded              a part of the worker that must not end has ended
└── EngineFault            the engine has ended and accepts no more jobs
    └── EngineCrashed          it ended while it ran the job

`jobs/outcome.py` maps each to one failure code.
"""

__all__ = [
    "AudioAddressInvalid",
    "AudioError",
    "AudioForbidden",
    "AudioNotFound",
    "AudioTimeout",
    "AudioTooLarge",
    "AudioUndecodable",
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
    "PartEnded",
    "QueueFault",
    "QueueUnavailable",
    "StorageUnavailable",
    "WorkerError",
    "exit_code_of",
]


class WorkerError(Exception):
    """The base of every exception that the worker raises on purpose."""


class ConfigError(WorkerError):
    """The configuration cannot work."""


class CheckpointError(WorkerError):
    """The loader cannot read the model folder or file."""


class ImageError(WorkerError):
    """The worker could not get the image of one job."""


class ImageNotFound(ImageError):
    """There is nothing at the image's address."""


class ImageForbidden(ImageError):
    """The worker may not read the image."""


class ImageTooLarge(ImageError):
    """The image is over the limit on bytes, pixels or the work of decoding."""


class ImageUndecodable(ImageError):
    """The bytes are not an image of an accepted format."""


class ImageTimeout(ImageError):
    """The image did not arrive in time."""


class ImageAddressInvalid(ImageError):
    """The image's address is of a kind this worker does not read."""


class StorageUnavailable(ImageError):
    """The object store answered with an error, or not at all."""


class AudioError(WorkerError):
    """The worker could not get the audio of one job."""


class AudioNotFound(AudioError):
    """There is nothing at the audio's address."""


class AudioForbidden(AudioError):
    """The worker may not read the audio."""


class AudioTooLarge(AudioError):
    """The audio is over the limit on bytes, seconds or the work of decoding."""


class AudioUndecodable(AudioError):
    """The bytes are not audio of an accepted format."""


class AudioTimeout(AudioError):
    """The audio did not arrive in time."""


class AudioAddressInvalid(AudioError):
    """The audio's address is of a kind this worker does not read."""


class QueueUnavailable(WorkerError):
    """Redis does not answer; the same call may work later."""


class QueueFault(WorkerError):
    """Redis answers with an error that a retry cannot fix: a key of the wrong type, or a script that fails."""


class PartEnded(WorkerError):
    """A part of the worker that must not end has ended, so the worker releases its jobs and ends too."""


class EngineFault(WorkerError):
    """The engine has ended and accepts no more jobs; this job may run elsewhere."""


class EngineCrashed(EngineFault):
    """The engine ended while it ran the job, which may be the cause."""


def exit_code_of(error: WorkerError) -> int:
    """Return a failed worker's exit code: 2 to fix its configuration first, 1 to start it again."""
    return 2 if isinstance(error, ConfigError | CheckpointError) else 1
