"""The command line of `stoop worker`: one flag for each field of the configuration."""

import importlib
import inspect
import os
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from stoop_worker.config import WorkerConfig, read_config
from stoop_worker.errors import ConfigError, WorkerError, exit_code_of
from stoop_worker.garbage import without_collection
from stoop_worker.logs import configure_logs

__all__ = ["command", "written_default"]


def command(**flags: Any) -> None:
    """Claim jobs from Redis and run them in one resident engine, until SIGTERM or Ctrl-C.

    After the first signal, running jobs may finish; a second signal ends them. Every flag is also a variable:
    --page-size is STOOP_PAGE_SIZE.
    """
    try:
        config = read_config(flags)
        configure_logs(config.log_level, config.log_format)
        _clear(config.ready_file)
        # imported only once the configuration is valid
        _load_numpy()
        if config.gpus:
            from stoop_worker.gpu_workers.parent import serve_gpus

            serve_gpus(config, flags)
        else:
            with without_collection():
                from stoop_worker.main import serve

            serve(config)
    except WorkerError as error:
        typer.echo(f"stoop worker: {error}", err=True)
        raise typer.Exit(exit_code_of(error)) from error


def written_default(field: FieldInfo) -> str:
    """Return the default of an optional field as a variable would have it; the empty string stands for no default."""
    default = field.get_default(call_default_factory=True)
    if isinstance(default, SecretStr):
        return default.get_secret_value()
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return "" if default is None else str(default)


def _load_numpy() -> None:
    """Load numpy so that each of its products takes one thread, unless the environment says otherwise.

    Several threads make the features of recordings. If each of their small products had a thread for every core, these
    would wait for each other and take twice the processor time. The engine's process is to use all cores.
    """
    name = "OPENBLAS_NUM_THREADS"
    if name not in os.environ:
        os.environ[name] = "1"
        importlib.import_module("numpy")
        del os.environ[name]


def _clear(ready_file: Path | None) -> None:
    """Remove a crashed worker's ready file, and check that its folder takes files before anything is loaded.

    The check makes a file without a name, because a program that waits for the ready file takes it as a sign even if it
    exists only for a moment.
    """
    try:
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
            with tempfile.TemporaryFile(dir=ready_file.parent):
                pass
    except OSError as error:
        raise ConfigError(f"--ready-file (STOOP_READY_FILE): {error}") from error


def _flag(name: str, field: FieldInfo) -> inspect.Parameter:
    kind = bool if field.annotation is bool else str
    option = typer.Option(
        help=f"{field.description}{_shown_default(field)}", metavar=_metavar(field), show_default=False
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _metavar(field: FieldInfo) -> str | None:
    """Return a flag's choices, or its type in capitals."""
    if field.annotation is bool:
        return None
    if get_origin(field.annotation) is Literal:
        return "|".join(get_args(field.annotation))
    names = [kind.__name__ for kind in (*get_args(field.annotation), field.annotation) if isinstance(kind, type)]
    return {"int": "INT", "float": "NUMBER", "Path": "PATH", "tuple": "NAMES"}.get(names[0] if names else "", "TEXT")


def _shown_default(field: FieldInfo) -> str:
    if field.is_required():
        return " (required)"
    default = written_default(field)
    return f" (default: {default})" if default else ""


def _describe() -> None:
    """Give `command` the signature that typer reads; the configuration checks flags and variables together."""
    parameters = [_flag(name, field) for name, field in WorkerConfig.model_fields.items()]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


_describe()
