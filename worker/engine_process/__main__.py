"""The engine child of a worker; started by the worker, never by hand."""

from worker.engine.request import Deliver
from worker.engine.thread import EngineThread
from worker.engine_process.boot import boot
from worker.engine_process.border import EngineSettings, Ready
from worker.engine_process.serving import serve_engine
from worker.logs import configure_logs

__all__ = ["build"]


def build(settings: EngineSettings, deliver: Deliver) -> tuple[EngineThread, Ready]:
    """Load the model and build the engine; raises `ConfigError` or `CheckpointError`."""
    configure_logs(settings.log_level, settings.log_format)
    engine, model = boot(settings)
    ready = Ready(model.name, model.digest, model.config.vision.geometry, model.device.type)
    return EngineThread(engine, deliver), ready


if __name__ == "__main__":
    serve_engine(build)
