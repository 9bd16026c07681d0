"""The command line `stoop`.

To add a command, add one line to `COMMANDS`: its name, the `module:name` of a function with typer's annotations (or of
a `typer.Typer(add_completion=False)` for a group), its panel in `stoop --help` and its line there. No module is
imported before its command is called.

In the command, `with exit_on_error(as_json=...)` turns a `StoopError` into one line and the documented exit code.
`context.obj or Client` makes the client, so that tests can bring their own.
"""

import errno
import sys
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

import typer

from stoop.cli.command_group import CommandEntry, CommandGroup
from stoop.terminal import flush

__all__ = ["COMMANDS", "app", "main"]

_ASK, _SETS, _QUEUE, _RUN = "Ask a model", "Work on many inputs", "Look after the queue", "Run"

COMMANDS: Final = (
    CommandEntry("query", "stoop.cli.skills:query", _ASK, "Answer a question about an image."),
    CommandEntry("caption", "stoop.cli.skills:caption", _ASK, "Describe an image."),
    CommandEntry("detect", "stoop.cli.skills:detect", _ASK, "Find every instance of an object in an image, as boxes."),
    CommandEntry("point", "stoop.cli.skills:point", _ASK, "Point at every instance of an object in an image."),
    CommandEntry("chat", "stoop.cli.chat:chat", _ASK, "Write the next message of a chat."),
    CommandEntry("gaze", "stoop.cli.skills:gaze", _ASK, "Find the place in an image that a person looks at."),
    CommandEntry("embed", "stoop.cli.texts:embed", _ASK, "Turn texts into vectors."),
    CommandEntry("rerank", "stoop.cli.texts:rerank", _ASK, "Score how well documents answer a query."),
    CommandEntry("transcribe", "stoop.cli.speech:transcribe", _ASK, "Transcribe the speech in a recording."),
    CommandEntry(
        "translate", "stoop.cli.speech:translate", _ASK, "Translate the speech in a recording into English text."
    ),
    CommandEntry("run", "stoop.cli.skills:run", _ASK, "Run any skill by name, including one from another package."),
    CommandEntry("schedule", "stoop.cli.schedule:schedule", _ASK, "Answer several questions at once, side by side."),
    CommandEntry("result", "stoop.cli.result:result", _ASK, "Wait for the answer to an earlier job."),
    CommandEntry("bulk", "stoop.cli.bulk:bulk", _SETS, "Run a skill on every image or recording of a source."),
    CommandEntry("bulk-embed", "stoop.cli.bulk_embed:bulk_embed", _SETS, "Turn every text of a file into a vector."),
    CommandEntry("export", "stoop.cli.export:export", _SETS, "Write results as COCO, YOLO, subtitles and others."),
    CommandEntry("draw", "stoop.cli.export:draw", _SETS, "Draw results on their images, with a contact sheet."),
    CommandEntry(
        "status", "stoop.cli.queue:status", _QUEUE, "Show the lanes, and how many jobs wait, run and are dead."
    ),
    CommandEntry("workers", "stoop.cli.queue:workers", _QUEUE, "List the live workers."),
    CommandEntry(
        "models", "stoop.cli.queue:models", _QUEUE, "List the models that have a live worker, with their skills."
    ),
    CommandEntry("cancel", "stoop.cli.queue:cancel", _QUEUE, "Cancel a job."),
    CommandEntry("pause", "stoop.cli.queue:pause", _QUEUE, "Stop workers from claiming from a lane."),
    CommandEntry("resume", "stoop.cli.queue:resume", _QUEUE, "Let workers claim from a paused lane again."),
    CommandEntry("dead", "stoop.cli.dead:dead", _QUEUE, "Show, redrive or purge dead letters."),
    CommandEntry("up", "stoop.cli.up:up", _RUN, "Start Redis, S3, a worker and the gateway on this machine."),
    CommandEntry(
        "serve", "stoop.cli.serve:serve", _RUN, "Serve Moondream's and OpenAI's HTTP interface over the queue."
    ),
    CommandEntry("exporter", "stoop.cli.exporter:exporter", _RUN, "Serve the queue's figures for Prometheus."),
    CommandEntry("keys", "stoop.cli.keys:keys", _RUN, "Make, list and revoke the gateway's API keys."),
    CommandEntry("demo", "stoop.cli.demo:demo", _RUN, "See real jobs go through Redis, S3 and a worker."),
)

_FAILED: Final = 1
_CANNOT_WRITE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EPIPE)

_EPILOG: Final = "\n\n".join(
    (
        "Exit codes: 0 done · 1 the job failed, or the named thing does not exist · 2 wrong usage or configuration ·"
        " 3 the queue or the object store is unreachable or full · 4 no answer in time",
        "Configuration: STOOP_REDIS_URL, STOOP_BUCKET, STOOP_S3_ENDPOINT, STOOP_LANE, STOOP_JOB_MODEL,"
        " STOOP_TIMEOUT_SECONDS and the usual AWS variables",
        'To begin, run "stoop demo"; or "stoop worker" in one shell, and in another: stoop query photo.jpg "How many?"',
    )
)


class _Stoop(CommandGroup):
    entries = COMMANDS
    found_panel = _RUN
    found_help: ClassVar[Mapping[str, str]] = {
        "worker": "Claim jobs and run them on this machine's GPU or CPU.",
        "inspect": "Show a checkpoint's configuration, sizes and dtypes.",
    }


app = typer.Typer(
    cls=_Stoop,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=_EPILOG,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"stoop {version('stoop')}")
        raise typer.Exit()


@app.callback()
def _stoop(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Run jobs of vision, language and speech models through a queue."""


def main() -> None:
    """Run the command line. If output cannot be written, exit with a line on stderr, or silently if its reader has
    closed.
    """
    failure: OSError | None = None
    exit_code: object = 0
    try:
        app(prog_name="stoop")
    except SystemExit as end:
        exit_code = end.code
    except OSError as error:
        if error.errno not in _CANNOT_WRITE:
            raise
        failure = error
    failure = flush() or failure
    if failure is None:
        sys.exit(exit_code)  # type: ignore[arg-type]
    if not isinstance(failure, BrokenPipeError):
        print(f"error: cannot write the output: {failure.strerror}", file=sys.stderr)
    sys.exit(_FAILED)
