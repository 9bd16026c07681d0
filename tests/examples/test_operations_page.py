"""The commands of the operator's first page, copied from it and run in its order, and those of the README."""

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from stoop.demo.pictures import draw_pictures
from tests.examples.conftest import ROOT

httpx = pytest.importorskip("httpx")

SECONDS = 120.0
PAGE = (ROOT / "docs" / "start" / "operations.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_operators_first_steps_work_as_written(tmp_path: Path) -> None:
    begin, ask, second, look, _, load, act, figures = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    shell = shell_in(tmp_path)
    *_, ann, me, up = begin.splitlines()
    key = shell(ann).split()[-1]
    shell(me)
    metrics = up.split()[0]
    assert metrics.startswith("STOOP_METRICS_PORT=")
    with running(f"{up.removeprefix(metrics)} --port 0 --folder kept", tmp_path, ready="Ctrl-C") as written:
        [address] = re.findall(r"^Open (http://127\.0\.0\.1:\d+) in a browser", written, re.MULTILINE)
        asked = ask.replace("KEY=… ", f"KEY={key} ").replace("localhost:8000", address)
        assert '"demo"' in shell(asked)
        assert httpx.get(f"{address}/v1/models", trust_env=False).status_code == 401
        shell = shell_in(tmp_path, "kept/environment")
        environment = "source kept/environment; exec "
        with running(environment + second.splitlines()[-1], tmp_path, ready='"event": "ready"'):
            until(lambda: shell(look), r"(?s)0\.2\.0.*0\.2\.0")
            assert shell(load.replace("3000", "24") + "grep -c '^>' answers.txt").split()[-1] == "24"
        acted = shell(act, code=None)
        assert "image_not_found" in acted and "paused" in acted
        shell("stoop resume bulk")
        (tmp_path / "deploy/monitoring").mkdir(parents=True)
        (tmp_path / "deploy/monitoring/prometheus-host.yml").write_bytes(
            (ROOT / "deploy/monitoring/prometheus-host.yml").read_bytes()
        )
        shell("".join(figures.splitlines(keepends=True)[1:3]))
        assert (tmp_path / "prometheus.key").stat().st_mode & 0o077 == 0
        assert f"credentials_file: {tmp_path}/prometheus.key" in (
            tmp_path / "deploy/monitoring/prometheus-host.yml"
        ).read_text(encoding="utf-8")
        use_the_readme(shell, address, key)


def use_the_readme(shell: Callable[..., str], address: str, key: str) -> None:
    """Run the README's commands about the pictures that `stoop up` stores."""
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    [fetch] = re.findall(r"^curl -o .*$", README, re.MULTILINE)
    shell(fetch.replace("'localhost:8000", f'-H "Authorization: Bearer {key}" \'{address}'))
    [folder] = [block for block in blocks if "stoop bulk" in block]
    assert "8 images: 8 answered" in shell(folder)
    [python] = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "import Client" in block]
    count, boxes = shell(f"{sys.executable} - <<'EOF'\n{python}EOF\n").splitlines()
    [picture] = draw_pictures(1, seed=1)
    assert count == str(len(picture.shapes)) and boxes.startswith("[")
    [caption] = [block for block in blocks if block.startswith("stoop caption")]
    assert len(shell(caption).split()) > 5


def shell_in(folder: Path, environment: str = "/dev/null") -> Callable[..., str]:
    """Return a function that runs lines of bash in the folder, and returns their output."""

    def shell(lines: str, code: int | None = 0) -> str:
        command = ["bash", "-c" if code is None else "-euc", f"source {environment}\n{lines}"]
        done = subprocess.run(
            command,
            cwd=folder,
            env=variables(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done.stdout + (done.stderr if code is None or not done.stdout.strip() or "bulk" in lines else "")

    return shell


def until(look: Callable[[], str], pattern: str) -> str:
    """Wait until the pattern is there."""
    deadline = time.monotonic() + SECONDS
    while not re.search(pattern, found := look()):
        assert time.monotonic() < deadline, found
    return found


@contextmanager
def running(line: str, folder: Path, *, ready: str) -> Iterator[str]:
    """Run a line of bash until the end of the block, which begins once it has written `ready`; yield its output."""
    process = subprocess.Popen(
        ["bash", "-c", line if line.lstrip().startswith("source") else f"exec {line}"],
        cwd=folder,
        env=variables(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    written, rest = "", Thread(target=process.stderr.read)
    try:
        for each in process.stderr:
            written += each
            if ready in each:
                break
        rest.start()  # a full pipe would stop the process
        yield written
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if rest.ident is not None:
            rest.join()
        process.stderr.close()


def variables() -> dict[str, str]:
    settings = {name: value for name, value in os.environ.items() if not name.startswith("STOOP_")}
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    found = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    return {**settings, "PATH": path, "PYTHONPATH": found, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
