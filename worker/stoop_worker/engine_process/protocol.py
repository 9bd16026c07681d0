"""The messages between the two processes; nothing here needs torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stoop_worker.engine.request import Output, Request
from stoop_worker.engine_process.pixels import Layout
from stoop_worker.errors import CheckpointError, ConfigError, WorkerError
from stoop_worker.images.tiling import CropGeometry

__all__ = ["Abort", "EngineSettings", "NotReady", "Ready", "Report", "Submit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The worker's settings that the child needs, by the same names: no address and no secret."""

    model: str
    revision: str | None = None
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
    fp8_cache: bool = False
    log_level: str = "info"
    log_format: str = "auto"


@dataclass(frozen=True, slots=True)
class Ready:
    """The child's first word: the engine has answered once, and this is what the front needs of its model.

    `geometry` says how the front cuts images; None leaves them whole. `skills` are those that the model has,
    `max_context` is in tokens.
    """

    model: str
    digest: str
    geometry: CropGeometry | None
    device: str = "cpu"
    skills: tuple[str, ...] = ()
    max_context: int | None = None


@dataclass(frozen=True, slots=True)
class NotReady:
    """The child's only word: the engine cannot be built."""

    error: str
    message: str

    @classmethod
    def of(cls, error: WorkerError) -> "NotReady":
        """Note an error down."""
        return cls(type(error).__name__, str(error))

    def as_error(self) -> WorkerError:
        """Return the error again; what is neither of the two that building raises becomes a `WorkerError`."""
        kinds: dict[str, type[WorkerError]] = {kind.__name__: kind for kind in (ConfigError, CheckpointError)}
        return kinds.get(self.error, WorkerError)(self.message)


@dataclass(frozen=True, slots=True)
class Submit:
    """A request without its media; the pixels are in the trays, or come beside it in one file, laid out like this."""

    request: Request
    layouts: tuple[Layout, ...] = ()


@dataclass(frozen=True, slots=True)
class Abort:
    """End this request within one step."""

    id: str


@dataclass(frozen=True, slots=True)
class Report:
    """The outputs since the last report, and how many steps the engine has made: it grows while the engine lives.

    `figures` are the engine's own, by name; those that end in `_total` begin anew with each child.
    """

    steps: int
    outputs: Sequence[Output]
    figures: Mapping[str, float]
