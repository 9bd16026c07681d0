"""Schemathesis: requests of every route made from its OpenAPI document, valid ones and wrong ones."""

import os
import subprocess
import sys
from pathlib import Path

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
)

command = [
    str(Path(sys.executable).with_name("schemathesis")),
    *("run", f"{os.environ['STOOP_STREAMING']}/openapi.json"),
    # this stream ends with its reader only
    *("--exclude-path", "/v1/queue/events"),
    *("--phases", "coverage,fuzzing", "--max-examples", "20", "--max-time", "120", "--request-timeout", "30"),
    *("--checks", ",".join(CHECKS), "--continue-on-failure", "--seed", "1", "--no-color", "--warnings", "off"),
]
sys.exit(subprocess.run(command).returncode)
