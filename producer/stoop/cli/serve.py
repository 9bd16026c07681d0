"""The command `stoop serve`."""

from stoop.cli.exit_codes import exit_on_error
from stoop.cli.skill_options import with_options
from stoop.config import ProducerConfig
from stoop.gateway.options import ServeOptions
from stoop.gateway.server import serve as run

__all__ = ["serve"]


@with_options
def serve(*, options: ServeOptions) -> None:
    """Serve Moondream's and OpenAI's HTTP interface over the queue, until SIGTERM or Ctrl-C."""
    with exit_on_error(as_json=False):
        run(ProducerConfig(), options)
