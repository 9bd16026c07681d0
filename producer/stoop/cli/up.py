"""`stoop up`: everything on this machine by one command, for a first look and for development."""

import contextlib
import os
import re
import shlex
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from stoop.cli.exit_codes import exit_on_error
from stoop.cli.first_request import FirstRequest, first_request
from stoop.cli.skill_options import with_options
from stoop.client.blocking import Client
from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedRedis, EmbeddedS3, embedded_redis, embedded_s3
from stoop.demo.pictures import draw_pictures
from stoop.demo.worker_process import BUNDLED, SEES, find_model, kept_running, running_worker
from stoop.errors import ConfigError
from stoop.gateway.options import ServeOptions
from stoop.gateway.server import check_free, serve

__all__ = ["UpOptions", "up", "welcome", "write_environment"]

_PICTURES = ("up/shapes.png", *(f"up/shapes-{number}.png" for number in range(2, 9)))
_START_SECONDS = 1800.0
"""The first start of a large model downloads it."""
_ENDING = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class UpOptions:
    """The services to run, and their addresses."""

    model: Annotated[
        str | None,
        typer.Option(help="Model folder or name; the bundled ones are demo (default), demo-hearing, demo-embedding."),
    ] = None
    device: Annotated[str, typer.Option(help="cpu, or cuda for a worker on a GPU.")] = "cpu"
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000
    keys: Annotated[Path | None, typer.Option(help="File of API keys; without it no key is asked for.")] = None
    folder: Annotated[
        Path | None, typer.Option(help="Folder that keeps jobs and images; by default they go when it ends.")
    ] = None


@with_options
def up(*, options: UpOptions) -> None:
    """Start Redis, S3, a worker and the gateway on this machine, until Ctrl-C, which ends all of them."""
    with exit_on_error(as_json=False), _ended_by_one_signal(), _folder(options.folder) as folder:
        model = find_model(options.model)
        check_free(options.host, options.port)
        name = _name(options.model)
        flags = {"lanes": "interactive,bulk", "device": options.device, **({"model-name": name} if name else {})}
        with embedded_redis(folder / "redis") as redis, embedded_s3(folder / "s3") as s3:
            typer.echo(f"Redis at {redis.url}, S3 at {s3.endpoint}; starting a worker ({options.device}) …", err=True)
            with (
                running_worker(folder, model, redis, s3, flags, _START_SECONDS) as worker,
                kept_running(worker, lambda line: typer.echo(line, err=True)),
            ):
                variables = write_environment(folder / "environment", redis, s3, {"model": str(model), **flags})
                _serve(redis, s3, options, name or str(options.model), variables)


def write_environment(path: Path, redis: EmbeddedRedis, s3: EmbeddedS3, worker_flags: dict[str, str]) -> Path:
    """Write a file that a shell can source to use these servers, and to start another worker on them; return its path.

    Only its owner may read it, because it holds the key of the S3 server.
    """
    variables = s3.environment | {
        "STOOP_REDIS_URL": redis.url,
        "STOOP_BUCKET": s3.bucket,
        "STOOP_S3_ENDPOINT": s3.endpoint,
        "STOOP_S3_PATH_STYLE": "true",
        **{f"STOOP_{name.upper().replace('-', '_')}": value for name, value in worker_flags.items()},
    }
    path.touch(mode=0o600)
    path.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()))
    return path


def _serve(redis: EmbeddedRedis, s3: EmbeddedS3, options: UpOptions, model: str, variables: Path) -> None:
    # the gateway uploads images from this process
    os.environ.update(s3.environment)
    config = ProducerConfig(
        redis_url=redis.url, bucket=s3.bucket, s3_endpoint=s3.endpoint, s3_region=s3.region, s3_path_style=True
    )
    for key, picture in zip(_PICTURES, draw_pictures(len(_PICTURES), seed=1), strict=True):
        s3.client().put_object(Bucket=s3.bucket, Key=key, Body=picture.encoded, ContentType="image/png")
    served = replace(ServeOptions(), host=options.host, port=options.port, keys=options.keys, open=options.keys is None)
    image = f"s3://{s3.bucket}/{_PICTURES[0]}"

    first = first_request(model, _skills(config, model), image)

    def greet(address: str) -> None:
        typer.echo(welcome(address, first, variables, keys=not served.open), err=True)

    serve(config, served, on_listening=greet)


def _skills(config: ProducerConfig, model: str) -> tuple[str, ...]:
    """Return the skills of the model's worker, which is ready; of any other if the model has no short name."""
    with Client(config) as client:
        live = client.models()
    named = [each for each in live if each.name == model]
    return next((each.skills for each in named or live), ())


def welcome(address: str, first: FirstRequest, variables: Path, *, keys: bool) -> str:
    """Return the commands to try first; with `keys` they send the API key in the shell's $KEY."""
    header = ' -H "Authorization: Bearer $KEY"' if keys else ""
    key = "$KEY" if keys else "none"
    python = f"from openai import OpenAI; print(OpenAI(base_url='{address}/v1', api_key='{key}').{first.call})"
    lines = [
        f"Open {address} in a browser, or try{', with an API key in $KEY' if keys else ''}:",
        f"curl {address}{first.path}{header} {first.fields}",
        *([f'pip install openai; python -c "{python}"'] if first.call else []),
        f"For stoop's commands and clients in another shell: source {shlex.quote(str(variables))}",
        "Ctrl-C ends everything.",
    ]
    return "\n" + "\n\n".join(lines) + "\n"


def _name(model: str | None) -> str | None:
    """Return the short name of a model in a folder, which has none of its own; None for a model of the catalog."""
    if model is None:
        return SEES
    if model in BUNDLED and not Path(model).exists():
        return model
    if not Path(model).is_dir():
        return None
    return re.sub(r"[^A-Za-z0-9._-]+", "-", Path(model).resolve().name).strip("-._")[:64] or None


@contextlib.contextmanager
def _ended_by_one_signal() -> Iterator[None]:
    """Let SIGTERM end the `with` as Ctrl-C does: by an exception, after which everything that has started is ended.

    Further signals do not interrupt that. The gateway sets its own handlers when it begins to listen.
    """

    def end(number: int, frame: FrameType | None) -> NoReturn:
        for each in _ENDING:
            # Python complains about a signal that has come already and is ignored by SIG_IGN
            signal.signal(each, lambda *_: None)
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is end:  # after a signal the process ends, and no further one interrupts it
                signal.signal(number, handler)


@contextlib.contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        try:
            kept.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--folder {kept} cannot be a folder: {error.strerror or error}") from error
        yield kept.absolute()  # absolute, because other shells source a file in it
        return
    with tempfile.TemporaryDirectory(prefix="stoop-up-") as name:
        yield Path(name)
