import base64
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from producer import Client, QueueFull, QueueUnavailable
from producer.cli import app
from producer.config import ProducerConfig
from schemas.failure import Failure, FailureCode
from schemas.job import Job
from schemas.skill import CaptionLength, Settings, Skill
from tests.producer.scripted import ScriptedTransport, answer, failing

IMAGE = "s3://photos/cat.jpg"


class Terminal:
    """Runs `stoop` in this process on a scripted queue."""

    def __init__(self, transport: ScriptedTransport) -> None:
        self.transport = transport
        self.config: ProducerConfig | None = None

    def connect(self, config: ProducerConfig) -> Client:
        self.config = config
        return Client(config, transport=self.transport)

    def run(self, *arguments: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(app, list(arguments), obj=self.connect)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name in ProducerConfig.model_fields:
        monkeypatch.delenv(f"STOOP_{name.upper()}", raising=False)
    return Terminal(ScriptedTransport(answer))


@pytest.fixture
def png(tmp_path: Path) -> str:
    path = tmp_path / "cat.png"
    Image.new("RGB", (100, 80), "white").save(path)
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["query", IMAGE, "how many?"], ["two red circles"]),
        (["query", "--no-image", "how many?"], ["two red circles"]),
        (["query", IMAGE, "how many?", "--reasoning"], ["I count.", "two red circles"]),
        (["caption", IMAGE], ["shapes on paper"]),
        (["caption", IMAGE, "--stream"], ["shapes on paper\n"]),
        (["query", IMAGE, "how many?", "--reasoning", "--stream"], ["I count.", "two red circles\n"]),
        (["detect", IMAGE, "cat"], ["2 objects", "x_min", "0.100", "0.600"]),
        (["detect", IMAGE, "cat", "--stream"], ["(0.100, 0.200, 0.500, 0.600)\n"]),
        (["point", IMAGE, "cat"], ["1 points", "0.250", "0.750"]),
    ],
)
def test_answers_are_printed(terminal: Terminal, arguments: list[str], printed: list[str]) -> None:
    exit_code, out, _ = terminal.run(*arguments)
    assert exit_code == 0
    assert all(text in out for text in printed)


def test_options_reach_the_job(terminal: Terminal) -> None:
    options = (
        "--length long --temperature 0 --top-p 0.5 --max-tokens 9 --max-objects 3 --seed 7 --lane bulk --timeout 20"
    )
    assert terminal.run("caption", IMAGE, *options.split())[0] == 0
    [job] = terminal.transport.submitted
    assert (job.skill, job.length, job.lane) == (Skill.CAPTION, CaptionLength.LONG, "bulk")
    assert job.settings == Settings(temperature=0.0, top_p=0.5, max_tokens=9, max_objects=3, seed=7)
    assert terminal.config is not None and terminal.config.timeout_seconds == 20


def test_json_is_the_result_of_the_wire(terminal: Terminal) -> None:
    exit_code, out, err = terminal.run("query", IMAGE, "how many?", "--json")
    told = json.loads(out)
    assert exit_code == 0
    assert err == ""
    assert (told["status"], told["skill"], told["output"]) == ("completed", "query", {"answer": "two red circles"})
    assert told["metrics"]["output_tokens"] == 5


def test_a_failed_job_is_one_line_and_exit_code_1(terminal: Terminal) -> None:
    terminal.transport.script = failing(Failure.of(FailureCode.IMAGE_NOT_FOUND, "nothing at s3://photos/cat.jpg"))
    exit_code, out, err = terminal.run("caption", IMAGE)
    assert (exit_code, out) == (1, "")
    assert err == "error: image_not_found: nothing at s3://photos/cat.jpg\n"
    exit_code, out, err = terminal.run("caption", IMAGE, "--json")
    told = json.loads(out)
    assert (exit_code, err) == (1, "")
    assert told["error"]["kind"] == "JobFailed"
    assert told["error"]["exit_code"] == 1
    assert told["result"]["failure"]["code"] == "image_not_found"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["query", IMAGE], "--no-image"),
        (["query", "--no-image", IMAGE, "how many?"], "--no-image"),
        (["caption", IMAGE, "--stream", "--json"], "--stream or --json"),
        (["query", "--no-image", "how many?", "--draw", "x.png"], "--draw"),
        (["caption", IMAGE, "--draw", "x.doc"], ".png"),
        (["caption", IMAGE, "--length", "epic"], "epic"),
        (["caption", IMAGE, "--temperature", "-1"], "temperature"),
        (["caption", IMAGE, "--lane", "a b"], "lane"),
        (["caption", "absent.png"], "no file absent.png"),
        (["caption", "."], "folder"),
        (["caption", __file__], "not an image"),
        (["describe", IMAGE], "describe"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_says_what_to_do(terminal: Terminal, arguments: list[str], told: str) -> None:
    exit_code, out, err = terminal.run(*arguments)
    assert (exit_code, out) == (2, "")
    assert told in " ".join(err.split())
    assert "Traceback" not in err
    assert terminal.transport.submitted == []


def test_a_local_image_needs_a_bucket(terminal: Terminal, png: str) -> None:
    exit_code, _, err = terminal.run("caption", png)
    assert exit_code == 2
    assert "STOOP_BUCKET" in err


def test_a_wrong_variable_is_named(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOOP_REDIS_URL", "http://:hunter2@h")
    exit_code, _, err = terminal.run("caption", IMAGE)
    assert exit_code == 2
    assert "STOOP_REDIS_URL" in err
    assert "hunter2" not in err


def test_no_answer_in_time_is_exit_code_4(terminal: Terminal) -> None:
    terminal.transport.script = None
    exit_code, out, _ = terminal.run("caption", IMAGE, "--timeout", "0.01", "--json")
    assert (exit_code, json.loads(out)["error"]["kind"]) == (4, "TimedOut")
    assert terminal.run("caption", IMAGE, "--timeout", "0.01", "--stream")[0] == 4


@pytest.mark.parametrize("error", [QueueUnavailable("Redis at h:1: refused"), QueueFull(2.0)])
def test_a_queue_that_takes_nothing_is_exit_code_3(terminal: Terminal, error: Exception) -> None:
    def refuse(job: Job) -> Any:
        raise error

    terminal.transport.script = refuse
    exit_code, _, err = terminal.run("caption", IMAGE)
    assert exit_code == 3
    assert err.startswith(f"error: {error}")
    assert len(err.splitlines()) == 1


def test_redis_that_is_not_there_is_exit_code_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOOP_REDIS_URL", "redis://:hunter2@127.0.0.1:1/0")
    done = CliRunner().invoke(app, ["caption", IMAGE])
    assert done.exit_code == 3
    assert done.stderr.startswith("error: Redis at 127.0.0.1:1")
    assert done.stderr.endswith("is Redis running there? STOOP_REDIS_URL says where\n")
    assert len(done.stderr.splitlines()) == 1
    assert "hunter2" not in done.stderr


def test_the_answer_is_drawn(terminal: Terminal, tmp_path: Path) -> None:
    written = io.BytesIO()
    Image.new("RGB", (200, 100), "white").save(written, "PNG")
    address = f"data:image/png;base64,{base64.b64encode(written.getvalue()).decode()}"
    to = tmp_path / "new-folder" / "drawn.png"
    assert terminal.run("detect", address, "cat", "--draw", str(to))[0] == 0
    with Image.open(to) as drawn:
        assert drawn.size == (200, 100)
        assert drawn.getpixel((100, 40)) != (255, 255, 255)


@pytest.mark.parametrize("options", [[], ["--stream"], ["--json"]])
def test_an_answer_that_cannot_be_drawn_is_still_printed(terminal: Terminal, options: list[str]) -> None:
    exit_code, out, err = terminal.run("caption", "data:image/png;base64,aGk=", "--draw", "drawn.png", *options)
    assert exit_code == 2
    assert "shapes on paper" in out
    assert len(out.splitlines()) == 1
    assert "error: cannot draw on the image" in err


def test_help_lists_the_worker_without_importing_it() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from producer.cli import app;"
        "print(CliRunner().invoke(app, ['--help']).stdout);"
        "print(sorted({'torch', 'worker'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "worker" in told
    assert "Exit codes" in told
    assert told.rstrip().endswith("[]")


def greet(name: Annotated[str, typer.Option()] = "you") -> None:
    """Greet."""
    typer.echo(f"hello {name}")


group = typer.Typer()
group.command()(greet)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Install a distribution that brings the command `greet`."""

    def install(value: str) -> None:
        metadata = tmp_path / "greeter-1.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: greeter\nVersion: 1\n")
        (metadata / "entry_points.txt").write_text(f"[stoop.commands]\ngreet = {value}\n")
        monkeypatch.syspath_prepend(str(tmp_path))

    return install


@pytest.mark.parametrize("name", ["greet", "group"])
def test_commands_of_other_packages_are_run(terminal: Terminal, found: Callable[[str], None], name: str) -> None:
    found(f"{__name__}:{name}")
    assert terminal.run("greet", "--name", "me") == (0, "hello me\n", "")


def test_a_command_whose_packages_are_missing_says_what_to_install(
    terminal: Terminal, found: Callable[[str], None]
) -> None:
    found("no_such_package:command")
    exit_code, _, err = terminal.run("greet")
    assert exit_code == 2
    assert "pip install 'stoop[greet]'" in err
