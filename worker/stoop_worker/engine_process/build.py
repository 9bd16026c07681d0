"""Builds the engine of a worker's child."""

from collections.abc import Callable

from stoop_worker.engine.request import Deliver
from stoop_worker.engine.thread import EngineThread
from stoop_worker.engine_process.boot import boot
from stoop_worker.engine_process.protocol import EngineSettings, Loading, Ready
from stoop_worker.logs import configure_logs

__all__ = ["build"]


def build(
    settings: EngineSettings, deliver: Deliver, on_loading: Callable[[Loading], None]
) -> tuple[EngineThread, Ready]:
    """Load the model and build the engine; raises `ConfigError` or `CheckpointError`."""
    configure_logs(settings.log_level, settings.log_format)
    engine, model = boot(settings, on_loading)
    skills = tuple(task.__name__.lower() for task in model.spec.tasks)
    ready = Ready(
        model.name,
        model.digest,
        model.spec.preparation,
        model.device.type,
        skills,
        engine.max_context,
        model.spec.sampling,
    )
    return EngineThread(engine, deliver), ready
