"""A real worker whose engine sends its answers word by word: `python -m tests.examples.streaming_worker`."""

import sys

from stoop_worker.config import read_config
from stoop_worker.logs import configure_logs
from stoop_worker.main import serve

if __name__ == "__main__":
    config = read_config({"model": "streaming"})
    configure_logs(config.log_level, config.log_format)
    serve(config, program=[sys.executable, "-m", "tests.examples.streaming_child"])
