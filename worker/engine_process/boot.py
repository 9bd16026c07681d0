"""From settings to an engine that has answered once."""

import time

import numpy as np
import structlog
import torch

from worker.engine.config import EngineConfig, cache_dtype, page_bytes
from worker.engine.engine import Engine
from worker.engine.request import Caption, Finished, Request, Sampling
from worker.engine_process.border import EngineSettings
from worker.errors import ConfigError
from worker.images import Crops, Image, cut, select_tiling
from worker.kernels.backend import has_triton
from worker.kernels.hopper import is_hopper
from worker.kernels.paged_attention import HEAD_DIMS
from worker.model.moondream import Moondream, load

__all__ = ["boot"]

log = structlog.get_logger(__name__)

# tokens and crops in one step: a GPU wants large steps; on a CPU a large step is one in which nobody hears anything
_BUDGETS = {"cuda": (8192, 64), "cpu": (2048, 16)}


def boot(settings: EngineSettings) -> tuple[Engine, Moondream]:
    """Load the model, build the engine and warm it up; say in the log what was chosen and why."""
    if settings.threads:
        torch.set_num_threads(settings.threads)
    device = _choose_device(settings)
    dtype = _choose_dtype(settings, device)
    began = time.perf_counter()
    model = load(settings.model, device=device, dtype=dtype, revision=settings.revision)
    log.info("model loaded", model=model.name, digest=model.digest, seconds=round(time.perf_counter() - began, 2))
    if model.untrained:
        log.warning("this model is untrained: its answers are noise")
    engine = Engine(model, _engine_config(settings, device))
    _say_memory(settings, engine, model)
    _warm_up(engine, model)
    return engine, model


def _choose_device(settings: EngineSettings) -> torch.device:
    present = torch.cuda.is_available()
    if settings.device == "cuda" and not present:
        raise ConfigError(
            "--device cuda: torch sees no CUDA device; use --device cpu, or install a CUDA build of torch"
        )
    name = settings.device if settings.device != "auto" else "cuda" if present else "cpu"
    why = (
        "asked for" if settings.device != "auto" else "a CUDA device is there" if present else "there is no CUDA device"
    )
    log.info("device chosen", device=name, why=why, threads=torch.get_num_threads())
    return torch.device(name)


def _choose_dtype(settings: EngineSettings, device: torch.device) -> torch.dtype:
    default = torch.bfloat16 if device.type == "cuda" else torch.float32
    dtype = default if settings.dtype == "auto" else getattr(torch, settings.dtype)
    log.info("dtype chosen", dtype=str(dtype), why="asked for" if settings.dtype != "auto" else f"fits {device.type}")
    return dtype


def _engine_config(settings: EngineSettings, device: torch.device) -> EngineConfig:
    tokens, crops = _BUDGETS[device.type]
    return EngineConfig(
        page_size=settings.page_size,
        pages=settings.pages,
        max_batch=settings.max_batch,
        token_budget=settings.token_budget or tokens,
        crop_budget=settings.crop_budget or crops,
        stall_crops=settings.stall_crops,
        prefix_cache=settings.prefix_cache,
        fp8_linears=settings.fp8_linears,
        fp8_cache=settings.fp8_cache,
    )


def _say_memory(settings: EngineSettings, engine: Engine, model: Moondream) -> None:
    pages = engine.stats.pages
    dtype = cache_dtype(engine.config, model)
    size = pages * page_bytes(model.config.text, dtype, settings.page_size)
    log.info(
        "KV cache made",
        pages=pages,
        page_size=settings.page_size,
        tokens=pages * settings.page_size,
        megabytes=size >> 20,
        dtype=str(dtype),
        why="asked for" if settings.pages else f"fits {model.device.type}",
        prefix_cache=settings.prefix_cache,
        attention="triton" if _has_kernel(model) else "reference",
        hopper_kernels=is_hopper(model.device),
    )


def _has_kernel(model: Moondream) -> bool:
    return has_triton() and model.device.type == "cuda" and model.config.text.head_dim in HEAD_DIMS


def _warm_up(engine: Engine, model: Moondream) -> None:
    """Answer before any job is claimed, in the largest step: a model that cannot answer must not take work."""
    began = time.perf_counter()
    engine.warm_up()
    for number in range(_images_at_once(engine, model)):
        asked = Request(f"warm-up {number}", Caption(), _grey(number, model), Sampling(temperature=0.0, max_tokens=4))
        engine.submit(asked)
    last = [output for _ in iter(lambda: engine.idle, True) for output in engine.step()][-1]
    if not isinstance(last, Finished):
        raise ConfigError(f"the model could not answer a first request: {last}")
    log.info("engine warm", seconds=round(time.perf_counter() - began, 2))


def _images_at_once(engine: Engine, model: Moondream) -> int:
    """Count the images that fill a step on a GPU, so that it is known to fit into memory; a CPU needs no such proof."""
    if model.device.type == "cpu":
        return 1
    config = engine.config
    geometry = model.config.vision.geometry
    side = 2 * geometry.crop_size
    by_crops = config.crop_budget // (1 + select_tiling(side, side, geometry).count)
    by_tokens = config.token_budget // (model.config.text.prefix_attn + 5)
    return max(1, min(config.max_batch, by_crops, by_tokens))


def _grey(level: int, model: Moondream) -> Crops | Image:
    geometry = model.config.vision.geometry
    image = Image.of(np.full((2 * geometry.crop_size, 2 * geometry.crop_size, 3), level, dtype=np.uint8))
    return cut(image, geometry) if model.device.type == "cpu" else image
