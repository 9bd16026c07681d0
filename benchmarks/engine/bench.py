"""The flags of the engine's benchmarks, and the engine that they describe."""

import argparse
import ast
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import torch

from benchmarks.engine.check import BOUNDS, Checked, check_engine
from benchmarks.engine.engine_run import EngineRun
from benchmarks.engine.full_size import DTYPES, open_model
from benchmarks.engine.image_processes import prepare
from benchmarks.engine.photo_requests import PhotoRequests
from benchmarks.engine.photos import Format, Photos, make_photos
from benchmarks.engine.random_adapters import adapter_names, write_adapters
from benchmarks.engine.workloads import Ask, photos_for
from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.engine import Engine
from stoop_worker.models.moondream.adapters import AdapterBank, read_adapters
from stoop_worker.models.moondream.family import MoondreamFamily
from stoop_worker.models.moondream.model import Moondream

__all__ = ["Bench", "add_flags", "photos_of", "settings_of"]

_WORKER_NAMES = {"crop_budget": "encode_budget", "stall_crops": "stall_budget"}  # the worker's flags, as crops
_FP8_LINEARS = "fp8_linears"  # a setting of the model, given among the engine's own


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `Bench.of` and `photos_of` read."""
    cuda = torch.cuda.is_available()
    parser.add_argument(
        "--model", default="full", help="full, tiny, or a folder written by benchmarks.engine.full_size"
    )
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16" if cuda else "fp32")
    parser.add_argument(
        "--engine", nargs="*", default=[], metavar="FIELD=VALUE", help="fields of EngineConfig, and fp8_linears"
    )
    parser.add_argument(
        "--adapters", type=int, default=0, help="random LoRA adapters, which the questions take in turn"
    )
    parser.add_argument("--adapter-rank", type=int, default=16)
    parser.add_argument("--on-device", action="store_true", help="give the engine whole images, not crops")
    parser.add_argument("--jpegs-on-gpu", action="store_true", help="leave even the JPEGs' decoding to the GPU")
    parser.add_argument("--precision", choices=BOUNDS, help="bounds of the check; by default those of the dtype")
    parser.add_argument("--photos", type=Path, default=Path(tempfile.gettempdir()) / "stoop-photos", help="folder")
    parser.add_argument("--seconds", type=float, default=60.0, help="most time for each closed loop")
    parser.add_argument("--out", type=Path, help="file for the figures; by default in the folder $OUT")


@dataclass(frozen=True, slots=True)
class Bench:
    """A model, its engine, and the flags that chose them."""

    model: Moondream
    engine: Engine
    arguments: argparse.Namespace

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "Bench":
        """Open the model and build the engine."""
        model = open_model(arguments.model, device=arguments.device, dtype=DTYPES[arguments.dtype])
        settings = _settings(arguments.engine)
        adapters = _adapters(model, arguments.adapters, arguments.adapter_rank)
        family = MoondreamFamily(model, fp8_linears=settings.pop(_FP8_LINEARS, False), adapters=adapters)
        engine = Engine(family, EngineConfig(**settings))
        engine.warm_up()
        return cls(model, engine, arguments)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings, for the file of figures."""
        kept = ("model", "device", "dtype", "on_device", "jpegs_on_gpu", "adapters", "adapter_rank")
        return {**{name: getattr(self.arguments, name) for name in kept}, "engine": _settings(self.arguments.engine)}

    @property
    def held_images(self) -> int:
        """The largest number of images that the prefix cache can hold."""
        text = self.model.config.text
        return self.engine.stats.pages * self.engine.config.page_size // text.prefix_attn + 1

    def adapted(self, asks: Iterator[Ask]) -> Iterator[Ask]:
        """Return the questions, each with the next adapter."""
        names = adapter_names(self.arguments.adapters) or [None]
        return (replace(ask, adapter=name) for ask, name in zip(asks, cycle(names), strict=False))

    def run(self, photos: Photos) -> EngineRun[Ask]:
        """Return the engine with these photos; `with` starts it."""
        undecoded = self.arguments.jpegs_on_gpu
        on_device = self.arguments.on_device or undecoded
        geometry = None if on_device else self.model.config.vision.geometry
        # one for each of a worker's loading threads; on a CPU they would only share its few cores
        processes = min(8, os.cpu_count() or 1) if self.model.device.type == "cuda" else 0
        requests = PhotoRequests(geometry, photos, on_device=on_device, undecoded=undecoded, processes=processes)
        return EngineRun(self.engine, requests.request_of, on_exit=requests.close)

    def check(self, asks: Iterable[Ask], photos: Photos) -> Checked:
        """Check the answers to these questions; raise `WrongAnswers` if they are wrong."""
        arguments = self.arguments
        precision = arguments.precision or _precision(_settings(arguments.engine), self.model.dtype)
        whole = arguments.on_device or arguments.jpegs_on_gpu
        load = partial(prepare, geometry=None, on_device=True, undecoded=arguments.jpegs_on_gpu) if whole else None
        checked = check_engine(self.engine, self.model, list(asks), photos, precision=precision, load=load)
        print(f"checked: {checked}", flush=True)
        return checked


def _adapters(model: Moondream, count: int, rank: int) -> AdapterBank:
    if not count:
        return AdapterBank()
    with tempfile.TemporaryDirectory(prefix="stoop-adapters-") as folder:
        write_adapters(Path(folder), model.config.text, count=count, rank=rank)
        return read_adapters(Path(folder), model.config.text, device=model.device, dtype=model.dtype)


def photos_of(asks: Iterable[Ask], folder: Path, *, most: int) -> Photos:
    """Return the photos for these questions, at most `most` of a shape; further questions reuse them from the first."""
    counts: dict[Format, int] = photos_for(asks)
    return {shape: make_photos(min(count, most), shape, folder) for shape, count in counts.items()}


def _precision(settings: Mapping[str, Any], dtype: torch.dtype) -> str:
    """Return the key of the bounds: any part of the engine in fp8 makes all of it less exact."""
    if any("fp8" in name and wanted for name, wanted in settings.items()):
        return "fp8"
    return str(dtype).removeprefix("torch.")


def _settings(pairs: Iterable[str]) -> dict[str, Any]:
    return settings_of(pairs, {_FP8_LINEARS, *(field.name for field in fields(EngineConfig))})


def settings_of(pairs: Iterable[str], known: AbstractSet[str]) -> dict[str, Any]:
    """Return the settings given as FIELD=VALUE; ends the program if a field is not one of `known`."""
    found: dict[str, Any] = {}
    for pair in pairs:
        option, _, value = pair.partition("=")
        name = _WORKER_NAMES.get(option, option) if _WORKER_NAMES.get(option) in known else option
        if name not in known:
            raise SystemExit(f"--engine {pair}: there are {', '.join(sorted(known))}")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found
