"""The worker of these benchmarks: `python -m benchmarks.gateway.echo_worker`."""

import sys

from stoop_worker.config import read_config
from stoop_worker.logs import configure_logs
from stoop_worker.main import serve

if __name__ == "__main__":
    config = read_config({"model": "echo"})
    configure_logs(config.log_level, config.log_format)
    serve(config, program=[sys.executable, "-m", "benchmarks.gateway.echo_engine"])
