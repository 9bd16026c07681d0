"""`stoop up` as a user types it: it starts everything, its own advice works, and Ctrl-C ends everything."""

import contextlib
import json
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stoop.cli.app import app
from tests.support.tiny_decoder import LLAMA, write_decoder

httpx = pytest.importorskip("httpx")

SECONDS = 120


def test_everything_starts_answers_and_ends(tmp_path: Path) -> None:
    with _up(tmp_path / "kept") as (process, written):
        address, command = _advice(written)
        assert command[1] == f"{address}/v1/query"
        headers = dict([command[command.index("-H") + 1].split(": ")])
        body = command[command.index("-d") + 1]
        with httpx.Client(base_url=address, timeout=SECONDS, trust_env=False) as http:
            answer = http.post(command[1], content=body, headers=headers)
            assert answer.status_code == 200 and answer.json()["answer"].isdecimal(), answer.text
            assert "script" in http.get("/").text
            shown = http.get("/v1/images", params={"address": "s3://stoop/up/shapes-8.png"})
            assert shown.content.startswith(b"\x89PNG"), "the pages of the documentation ask about these pictures"
        [redis] = re.findall(r"Redis at redis://127\.0\.0\.1:(\d+)", "".join(written))
        children = _children(process.pid)
        assert len(children) >= 3, "Redis, S3 and a worker"
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        rest = process.stderr.read()  # to its end, which is the end of every process that has the pipe
        assert process.wait(SECONDS) == 0, rest
        assert "Traceback" not in rest
        assert not [pid for pid in children if Path(f"/proc/{pid}/cmdline").exists()]
        assert json.loads(body)["image_url"].startswith("s3://") and redis


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_start_leaves_nothing(tmp_path: Path, first: signal.Signals) -> None:
    with _up(None, begun="Redis at", temporary=tmp_path) as (process, _):
        children = _children(process.pid)
        assert list(tmp_path.glob("stoop-up-*"))
        process.send_signal(first)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        rest = process.stderr.read()
        assert process.wait(SECONDS) in (128 + first, 128 + signal.SIGINT), rest
        assert "Traceback" not in rest
        assert all(map(_ends, children))
        assert not list(tmp_path.glob("stoop-up-*"))


def test_a_second_ctrl_c_ends_it_without_a_traceback(tmp_path: Path) -> None:
    with _up(None, temporary=tmp_path) as (process, _):
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        rest = process.stderr.read()
        assert process.wait(SECONDS) == 0, rest
        assert "Traceback" not in rest
        assert not list(tmp_path.glob("stoop-up-*"))


def test_the_bundled_whisper_transcribes_over_http(tmp_path: Path) -> None:
    with _up(tmp_path / "kept", "--model", "demo-hearing") as (_, written):
        address, command = _advice(written)
        assert command[1] == f"{address}/v1/audio/transcriptions"
        model, file = (command[at + 1] for at, word in enumerate(command) if word == "-F")
        recording = Path(file.removeprefix("file=@"))
        spoken = {talk["file"]: talk["text"] for talk in json.loads((recording.parent / "talks.json").read_text())}
        with httpx.Client(timeout=SECONDS, trust_env=False) as http:
            fields = dict([model.split("=")])
            answer = http.post(command[1], data=fields, files={"file": (recording.name, recording.read_bytes())})
        assert answer.status_code == 200, answer.text
        assert answer.json()["text"] == spoken[recording.name]


def test_a_chat_model_gets_a_chat_as_its_first_request(tmp_path: Path) -> None:
    model = write_decoder(tmp_path / "tiny-llama", LLAMA)
    with _up(tmp_path / "kept", "--model", str(model)) as (_, written):
        address, command = _advice(written)
        assert command[1] == f"{address}/v1/chat/completions"
        headers = dict([command[command.index("-H") + 1].split(": ")])
        with httpx.Client(timeout=SECONDS, trust_env=False) as http:
            answer = http.post(command[1], content=command[command.index("-d") + 1], headers=headers)
        assert answer.status_code == 200 and answer.json()["model"] == "tiny-llama", answer.text
        assert any("model='tiny-llama', messages=" in line for line in written)


def test_a_taken_port_and_a_wrong_folder_are_reported_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for options, problem in (
            (["--folder", str(tmp_path), "--port", port], "choose another --port"),
            (["--folder", str(tmp_path / "file"), "--port", "0"], "cannot be a folder"),
        ):
            result = CliRunner().invoke(app, ["up", *options])
            assert (result.exit_code, problem in result.output, "Redis at" in result.output) == (2, True, False)


@contextlib.contextmanager
def _up(
    folder: Path | None, *options: str, begun: str = "Ctrl-C", temporary: Path | None = None
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Run `stoop up`; yield the process, and the lines that it wrote until one that starts with `begun`."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith("STOOP_")}
    path = os.pathsep.join(filter(None, sys.path))
    kept = [] if folder is None else ["--folder", str(folder)]
    if temporary is not None:
        settings["TMPDIR"] = str(temporary)
    process = subprocess.Popen(
        [sys.executable, "-m", "stoop", "up", "--port", "0", *kept, *options],
        stderr=subprocess.PIPE,
        text=True,
        env={**settings, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    written: list[str] = []
    try:
        assert process.stderr is not None
        for line in process.stderr:
            written.append(line)
            if line.startswith(begun):
                break
        yield process, written
    finally:
        process.send_signal(signal.SIGINT)
        try:
            _, rest = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            _, rest = process.communicate()
        logs = [log.read_text() for place in (folder, temporary) if place for log in place.rglob("worker.log")]
        print("".join(written), rest, *logs, sep="\n")  # pytest shows it only if the test fails


def _advice(written: list[str]) -> tuple[str, list[str]]:
    """Return the address and the curl command, as words."""
    [address] = re.findall(r"^Open (http://127\.0\.0\.1:\d+) in a browser", "".join(written), re.MULTILINE)
    [command] = [shlex.split(line) for line in written if line.startswith("curl ")]
    return address, command


def _ends(pid: str) -> bool:
    """Return whether the process ends; the kernel ends one that had only just begun, soon after its parent."""
    try:
        process = os.pidfd_open(int(pid))
    except ProcessLookupError:
        return True
    ended, _, _ = select.select([process], [], [], SECONDS)
    os.close(process)
    return bool(ended)


def _children(pid: int) -> list[str]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += (task / "children").read_text().split()
    return found
