"""A worker whose engine answers at once: `python -m benchmarks.queue.instant_worker [--without-metrics]`.

The usual variables configure it. Without metrics, its counters and histograms count nothing.
"""

import sys

from stoop_worker import main
from stoop_worker.config import read_config
from stoop_worker.logs import configure_logs
from stoop_worker.metrics import Ending, Metrics

__all__ = ["SilentMetrics"]


class SilentMetrics(Metrics):
    """Takes every event of a job and counts none."""

    def in_flight(self, jobs: int) -> None:
        """Do nothing."""

    def settled(self, ending: Ending) -> None:
        """Do nothing."""


if __name__ == "__main__":
    if "--without-metrics" in sys.argv:
        main.Metrics = SilentMetrics  # type: ignore[attr-defined]
    config = read_config({"model": "echo"})
    configure_logs(config.log_level, config.log_format)
    main.serve(config, program=[sys.executable, "-m", "benchmarks.gateway.echo_engine"])
