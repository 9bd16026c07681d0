"""`stoop up` as somebody types it: it starts everything, its own advice works, and Ctrl-C ends everything."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

httpx = pytest.importorskip("httpx")

SECONDS = 120


def test_everything_starts_answers_and_ends(tmp_path: Path) -> None:
    settings = {name: value for name, value in os.environ.items() if not name.startswith("STOOP_")}
    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        [sys.executable, "-m", "stoop", "up", "--port", "0", "--folder", str(tmp_path / "kept")],
        stderr=subprocess.PIPE,
        text=True,
        env={**settings, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        written = []
        for line in process.stderr:
            written.append(line)
            if line.startswith("Ctrl-C"):
                break
        [address] = re.findall(r"^Open (http://127\.0\.0\.1:\d+) in a browser", "".join(written), re.MULTILINE)
        [command] = [shlex.split(line) for line in written if line.startswith("curl ")]
        assert command[1] == f"{address}/v1/query"
        headers = dict([command[command.index("-H") + 1].split(": ")])
        body = command[command.index("-d") + 1]
        with httpx.Client(base_url=address, timeout=SECONDS, trust_env=False) as http:
            answer = http.post(command[1], content=body, headers=headers)
            assert answer.status_code == 200 and answer.json()["answer"].isdecimal(), answer.text
            assert "script" in http.get("/").text
        [redis] = re.findall(r"Redis at redis://127\.0\.0\.1:(\d+)", "".join(written))
        children = _children(process.pid)
        assert len(children) >= 3, "Redis, S3 and a worker"
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()  # to its end, which is the end of every process that has the pipe
        assert process.wait(SECONDS) == 0, rest
        assert "Traceback" not in rest
        assert not [pid for pid in children if Path(f"/proc/{pid}/cmdline").exists()]
        assert json.loads(body)["image_url"].startswith("s3://") and redis
    finally:
        process.kill()
        process.communicate()


def _children(pid: int) -> list[str]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += (task / "children").read_text().split()
    return found
