"""A random model behind the product's engine, loaded as a worker loads it, and the same weights in transformers."""

import argparse
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.engine.bench import settings_of
from benchmarks.engine.full_size import DTYPES
from benchmarks.families.checkpoint import random_reference, write_folder
from benchmarks.families.sizes import TINY, document_of
from stoop_worker.engine.encoder import Encoder
from stoop_worker.engine.model import Model
from stoop_worker.engine.thread import AnyEngine
from stoop_worker.engine_process.boot import boot
from stoop_worker.engine_process.protocol import EngineSettings

__all__ = ["Opened", "open_model"]

_SHARED_MEMORY: Final = Path("/dev/shm")
_MAX_CONTEXT: Final = 4096
_TINY_SHARE: Final = 16
_SETTINGS: Final = frozenset(field.name for field in fields(EngineSettings)) - {"model", "device", "dtype"}


@dataclass(slots=True)
class Opened:
    """A model and its engine, its config.json, and the `reference` for its answers, which is None after the check."""

    name: str
    document: Mapping[str, Any]
    engine: AnyEngine
    model: Model | Encoder
    reference: Any
    arguments: argparse.Namespace

    @property
    def loads(self) -> list[int]:
        """The numbers of requests in flight to measure."""
        return [int(load) for load in self.arguments.concurrency.split(",")]

    def length(self, tokens: int) -> int:
        """Return the length of a text that is `tokens` long for a model of full size; it is shorter for a tiny one."""
        return max(8, tokens // _TINY_SHARE) if self.is_tiny else tokens

    @property
    def is_tiny(self) -> bool:
        """True if the model is for tests alone."""
        return self.name.endswith(TINY)

    @property
    def precision(self) -> str:
        """The key of the check's bounds: any part in float8 makes all of it less exact."""
        settings = settings_of(self.arguments.engine, _SETTINGS)
        if "quantization_config" in self.document or any("fp8" in name and on for name, on in settings.items()):
            return "fp8"
        return str(DTYPES[self.arguments.dtype]).removeprefix("torch.")


def open_model(arguments: argparse.Namespace) -> Opened:
    """Draw the weights, write them as a checkpoint, and boot the engine from it."""
    document, dtype = document_of(arguments.model), DTYPES[arguments.dtype]
    reference = random_reference(document, device=arguments.device, dtype=dtype)
    size = sum(parameter.numel() for parameter in reference.parameters()) * dtype.itemsize
    with _scratch(size) as folder:
        write_folder(folder, document, reference, dtype)
        if arguments.device == "cuda":
            torch.cuda.empty_cache()  # what drawing took would be missing from the engine's memory
        settings = {"max_context": _MAX_CONTEXT, **settings_of(arguments.engine, _SETTINGS)}
        named = str(dtype).removeprefix("torch.")
        engine, model = boot(EngineSettings(model=str(folder), device=arguments.device, dtype=named, **settings))
    return Opened(arguments.model, document, engine, model, reference, arguments)


@contextmanager
def _scratch(size: int) -> Iterator[Path]:
    """Yield an empty folder, in memory if a checkpoint of this size fits there twice."""
    in_memory = _SHARED_MEMORY.is_dir() and shutil.disk_usage(_SHARED_MEMORY).free > 2 * size
    with tempfile.TemporaryDirectory(dir=_SHARED_MEMORY if in_memory else None) as folder:
        yield Path(folder)
