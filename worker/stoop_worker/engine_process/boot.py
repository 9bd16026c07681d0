"""Builds an engine from settings, and has it answer once."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import structlog
import torch

from stoop_worker.engine.batch_engine import BatchEngine
from stoop_worker.engine.config import FLASHINFER, EngineConfig, page_bytes
from stoop_worker.engine.encoder import Encoder
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.model import Model
from stoop_worker.engine.request import Finished, Output, Refused
from stoop_worker.engine.thread import AnyEngine
from stoop_worker.engine_process.protocol import EngineSettings, Loading
from stoop_worker.engine_process.reading import Reading
from stoop_worker.errors import ConfigError
from stoop_worker.kernels.hopper import given_up, is_hopper
from stoop_worker.kernels.jpeg import decoder_of
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.download import snapshot
from stoop_worker.models.loading.options import AdapterOptions, LoadOptions

__all__ = ["boot"]

log = structlog.get_logger(__name__)

# Positions in one step: a GPU is efficient with large steps; on a CPU a large step delays every output.
_TOKEN_BUDGETS = {"cuda": 8192, "cpu": 2048}


def boot(
    settings: EngineSettings, on_loading: Callable[[Loading], None] = lambda loading: None
) -> tuple[AnyEngine, Model | Encoder]:
    """Load the model, build the engine and warm it up; log each choice and its reason.

    `on_loading` is called every second with the progress of reading the weights.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    device = _choose_device(settings)
    if settings.jpegs_on_gpu:
        _check_jpegs(device)
    reading = Reading(on_loading)
    options = LoadOptions(
        device,
        _choose_dtype(settings, device),
        settings.fp8_linears,
        settings.max_context,
        _adapters(settings),
        on_read=reading.on_read,
        # its products with few rows are faster than those of wider weights, where they have a kernel of their own
        block_fp8=is_hopper(device) if settings.block_fp8 is None else settings.block_fp8,
    )
    began = time.perf_counter()
    licence = settings.licence
    download = partial(snapshot, licence=licence)
    model = load_model(settings.model, options, revision=settings.revision, licence=licence, download=download)
    log.info(
        "model loaded",
        model=model.name,
        digest=model.digest,
        megabytes=reading.read >> 20,
        seconds=round(time.perf_counter() - began, 2),
    )
    if model.untrained:
        log.warning("this model is untrained: its answers are noise")
    engine = _build_engine(settings, model)
    _warm_up(engine, model)
    return engine, model


def _adapters(settings: EngineSettings) -> AdapterOptions | None:
    if settings.adapters is None:
        return None
    return AdapterOptions(settings.adapters, settings.resident_adapters, settings.adapter_rank)


def _build_engine(settings: EngineSettings, model: Model | Encoder) -> AnyEngine:
    if isinstance(model, Encoder):
        return BatchEngine(model, _batch_config(settings, model))
    engine = Engine(model, _engine_config(settings, model))
    _log_memory(settings, engine, model)
    _log_attention(engine, model)
    return engine


def _choose_device(settings: EngineSettings) -> torch.device:
    present = torch.cuda.is_available()
    if settings.device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device is {settings.device!r}: make it auto, cpu or cuda")
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


def _check_jpegs(device: torch.device) -> None:
    """Raise a `ConfigError` if the device decodes no JPEGs."""
    if device.type == "cpu":
        raise ConfigError("--jpegs-on-gpu needs a GPU: leave it off")
    try:
        decoder_of(device)
    except OSError as error:
        raise ConfigError(f"--jpegs-on-gpu needs nvJPEG ({error}): pip install 'stoop[gpu]'") from error
    except RuntimeError as error:
        raise ConfigError(f"--jpegs-on-gpu: this GPU has no decoder of JPEGs ({error}): leave it off") from error


def _choose_dtype(settings: EngineSettings, device: torch.device) -> torch.dtype:
    if settings.dtype not in ("auto", "float32", "bfloat16"):
        raise ConfigError(f"dtype is {settings.dtype!r}: make it auto, float32 or bfloat16")
    default = torch.bfloat16 if device.type == "cuda" else torch.float32
    dtype = default if settings.dtype == "auto" else getattr(torch, settings.dtype)
    log.info("dtype chosen", dtype=str(dtype), why="asked for" if settings.dtype != "auto" else f"fits {device.type}")
    return dtype


def _engine_config(settings: EngineSettings, model: Model) -> EngineConfig:
    return EngineConfig(
        page_size=settings.page_size,
        pages=settings.pages,
        max_batch=settings.max_batch,
        max_context=settings.max_context,
        token_budget=settings.token_budget or _TOKEN_BUDGETS[model.device.type],
        encode_budget=settings.crop_budget or model.spec.encode_budget,
        stall_budget=settings.stall_crops,
        prefix_cache=settings.prefix_cache,
        fp8_cache=settings.fp8_cache,
        attention=settings.attention,
    )


def _batch_config(settings: EngineSettings, model: Encoder) -> EngineConfig:
    return EngineConfig(
        max_batch=settings.max_batch,
        max_context=settings.max_context,
        token_budget=settings.token_budget or _TOKEN_BUDGETS[model.device.type],
        prefix_cache=settings.prefix_cache,
    )


def _log_memory(settings: EngineSettings, engine: Engine, model: Model) -> None:
    memory = engine.memory
    size = memory.pages * page_bytes(model.spec.kv, memory.dtype, settings.page_size)
    log.info(
        "KV cache made",
        pages=memory.pages,
        page_size=settings.page_size,
        tokens=memory.pages * settings.page_size,
        max_context=memory.max_context,
        megabytes=size >> 20,
        dtype=str(memory.dtype),
        why="asked for" if settings.pages else f"fits {model.device.type}",
        prefix_cache=settings.prefix_cache,
    )


def _log_attention(engine: Engine, model: Model) -> None:
    choice = engine.attention
    log.info(
        "attention chosen",
        prefill=choice.prefill,
        decode=choice.decode,
        why=choice.why,
        hopper_kernels=is_hopper(model.device),
    )
    if FLASHINFER in (choice.prefill, choice.decode):
        log.info("FlashInfer compiles its kernels now, unless an earlier start has: this takes up to minutes")


def _warm_up(engine: AnyEngine, model: Model | Encoder) -> None:
    """Answer in the largest step before any job is claimed: a model that cannot answer must not take work."""
    began = time.perf_counter()
    with ThreadPoolExecutor(1, thread_name_prefix="vocabulary") as beside:
        # before any stream is there to stall; the warm-up goes on meanwhile wherever it waits outside the interpreter
        reading = None if isinstance(model, Encoder) else beside.submit(model.read_vocabulary)
        last = _rehearse(engine, model)
    if reading is not None:
        reading.result()
    if not isinstance(last, Finished):
        reason = last.message if isinstance(last, Refused) else last
        raise ConfigError(f"the model could not answer a first request: {reason}")
    for kernel, reason in given_up().items():
        log.warning("a kernel cannot be used here: a slower one takes its place", kernel=kernel, reason=reason)
    log.info("engine warm", seconds=round(time.perf_counter() - began, 2))


def _rehearse(engine: AnyEngine, model: Model | Encoder) -> Output:
    """Run the model's warm-up requests; return the last output."""
    engine.warm_up()
    for request in model.rehearsal(engine.config):
        engine.submit(request)
    return [output for _ in iter(lambda: engine.idle, True) for output in engine.step()][-1]
