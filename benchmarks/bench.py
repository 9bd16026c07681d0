"""What every benchmark of the engine is told, and the engine it makes of that."""

import argparse
import ast
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from benchmarks.check import BOUNDS, Checked, check_engine
from benchmarks.engine_run import EngineRun, Photos
from benchmarks.full_size import DTYPES, open_model
from benchmarks.photos import Format, make_photos
from benchmarks.workloads import Ask, photos_for
from worker.engine.config import EngineConfig
from worker.engine.engine import Engine
from worker.model.moondream import Moondream

__all__ = ["Bench", "add_flags", "photos_of"]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `Bench.of` and `photos_of` read."""
    cuda = torch.cuda.is_available()
    parser.add_argument("--model", default="full", help="full, tiny, or a folder written by benchmarks.full_size")
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16" if cuda else "fp32")
    parser.add_argument("--engine", nargs="*", default=[], metavar="FIELD=VALUE", help="fields of EngineConfig")
    parser.add_argument("--on-device", action="store_true", help="give the engine whole images, not crops")
    parser.add_argument("--precision", choices=BOUNDS, help="bounds of the check; by default those of the dtype")
    parser.add_argument("--photos", type=Path, default=Path(tempfile.gettempdir()) / "stoop-photos", help="folder")
    parser.add_argument("--seconds", type=float, default=60.0, help="most time for each closed loop")
    parser.add_argument("--out", type=Path, help="file for the figures; by default in the folder $OUT")


@dataclass(frozen=True, slots=True)
class Bench:
    """A model, its engine, and how it was asked for."""

    model: Moondream
    engine: Engine
    arguments: argparse.Namespace

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "Bench":
        """Open the model and build the engine."""
        model = open_model(arguments.model, device=arguments.device, dtype=DTYPES[arguments.dtype])
        engine = Engine(model, EngineConfig(**_settings(arguments.engine)))
        engine.warm_up()
        return cls(model, engine, arguments)

    @property
    def settings(self) -> dict[str, Any]:
        """What was asked for, for the file of figures."""
        kept = ("model", "device", "dtype", "on_device")
        return {**{name: getattr(self.arguments, name) for name in kept}, "engine": _settings(self.arguments.engine)}

    @property
    def held_images(self) -> int:
        """How many images the prefix cache can hold at the most."""
        text = self.model.config.text
        return self.engine.stats.pages * self.engine.config.page_size // text.prefix_attn + 1

    def run(self, photos: Photos) -> EngineRun:
        """Return the engine, to be started by `with`, over these photos."""
        geometry, on_device = self.model.config.vision.geometry, self.arguments.on_device
        # as many as a worker has threads that load; on a CPU all of them would only share its few cores
        processes = min(8, os.cpu_count() or 1) if self.model.device.type == "cuda" else 0
        return EngineRun(self.engine, geometry, photos, on_device=on_device, processes=processes)

    def check(self, asks: Iterable[Ask], photos: Photos) -> Checked:
        """Check the answers to these questions; raise `WrongAnswers` if nothing may be timed."""
        arguments = self.arguments
        precision = arguments.precision or _precision(self.engine.config, self.model.dtype)
        checked = check_engine(
            self.engine, self.model, list(asks), photos, precision=precision, on_device=arguments.on_device
        )
        print(f"checked: {checked}", flush=True)
        return checked


def photos_of(asks: Iterable[Ask], folder: Path, *, most: int) -> Photos:
    """Return the photos for these questions, at most so many of a shape: the next ones begin anew with the first."""
    counts: dict[Format, int] = photos_for(asks)
    return {shape: make_photos(min(count, most), shape, folder) for shape, count in counts.items()}


def _precision(config: EngineConfig, dtype: torch.dtype) -> str:
    """Return whose bounds hold: whatever of the engine is in fp8 makes all of it less exact."""
    if any("fp8" in field.name and getattr(config, field.name) for field in fields(config)):
        return "fp8"
    return str(dtype).removeprefix("torch.")


def _settings(pairs: Iterable[str]) -> dict[str, Any]:
    known = {field.name for field in fields(EngineConfig)}
    found: dict[str, Any] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if name not in known:
            raise SystemExit(f"--engine {pair}: EngineConfig has {', '.join(sorted(known))}")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found
