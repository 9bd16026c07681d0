"""The command `stoop exporter`."""

from stoop.cli.exit_codes import exit_on_error
from stoop.cli.skill_options import with_options
from stoop.config import ProducerConfig
from stoop.exporter.options import ExporterOptions
from stoop.exporter.server import run

__all__ = ["exporter"]


@with_options
def exporter(*, options: ExporterOptions) -> None:
    """Serve the queue's figures for Prometheus at /metrics, until SIGTERM or Ctrl-C."""
    with exit_on_error(as_json=False):
        run(ProducerConfig(), options)
