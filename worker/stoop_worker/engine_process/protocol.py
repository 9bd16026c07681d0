"""The messages between the two processes; nothing here needs torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stoop_worker.audio import MelGeometry
from stoop_worker.engine.request import Output, Request
from stoop_worker.engine_process.pixels import Layout
from stoop_worker.errors import CheckpointError, ConfigError, WorkerError
from stoop_worker.figures import Figures
from stoop_worker.images import Preparation

__all__ = ["Abort", "EngineSettings", "Loading", "NotReady", "Ready", "Report", "Submit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The worker's settings that the child needs, under the same names: no address and no secret."""

    model: str
    revision: str | None = None
    licence: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    threads: int | None = None
    pages: int | None = None
    page_size: int = 16
    max_batch: int = 64
    max_context: int = 32_768
    token_budget: int | None = None
    crop_budget: int | None = None
    stall_crops: int = 27
    prefix_cache: bool = True
    fp8_linears: bool = False
    jpegs_on_gpu: bool = False
    block_fp8: bool | None = None
    fp8_cache: bool = False
    attention: str = "auto"
    adapters: Path | None = None
    resident_adapters: int | None = None
    adapter_rank: int = 32
    log_level: str = "info"
    log_format: str = "auto"


@dataclass(frozen=True, slots=True)
class Loading:
    """The child's message before `Ready`: the bytes of weights that have been read, and those of all weight files."""

    read: int
    total: int

    def __str__(self) -> str:
        return f"{self.read / 1e9:.1f} of {self.total / 1e9:.1f} GB"


@dataclass(frozen=True, slots=True)
class Ready:
    """The child's message once the engine has answered a first request. It describes the model to the front.

    The front cuts or resizes images, or makes frames of sound, by `preparation`; None leaves images as they are.
    `skills` are the model's, `max_context` is in tokens. `sampling` are its makers' defaults, by the names of the
    engine's `Sampling`.
    """

    model: str
    digest: str
    preparation: Preparation | MelGeometry
    device: str = "cpu"
    skills: tuple[str, ...] = ()
    max_context: int | None = None
    sampling: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotReady:
    """The child's last message if the engine cannot be built."""

    error: str
    message: str

    @classmethod
    def of(cls, error: WorkerError) -> "NotReady":
        """Return the message for an error."""
        return cls(type(error).__name__, str(error))

    def as_error(self) -> WorkerError:
        """Return the error again, as a `ConfigError`, a `CheckpointError`, or else a `WorkerError`."""
        kinds: dict[str, type[WorkerError]] = {kind.__name__: kind for kind in (ConfigError, CheckpointError)}
        return kinds.get(self.error, WorkerError)(self.message)


@dataclass(frozen=True, slots=True)
class Submit:
    """A request without its media, and their layouts; pixels outside the shared file come with it in another file."""

    request: Request
    layouts: tuple[Layout, ...] = ()


@dataclass(frozen=True, slots=True)
class Abort:
    """End this request within one step."""

    id: str


@dataclass(frozen=True, slots=True)
class Report:
    """The outputs since the last report, and the engine's counter of progress, which grows while the engine lives.

    `figures` are the engine's own, by name. Those that end in `_total` start from 0 in each child. A report soon after
    another has none, because nobody reads them so often.
    """

    progress: int
    outputs: Sequence[Output]
    figures: Figures | None
