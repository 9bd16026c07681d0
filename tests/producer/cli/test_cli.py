import base64
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from PIL import Image
from typer.main import get_command
from typer.testing import CliRunner

from stoop import Client, QueueFull, QueueUnavailable
from stoop.cli.app import COMMANDS, app
from stoop.config import ProducerConfig
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from stoop_schemas.skill import CaptionLength, Settings, Skill
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
        (["point", IMAGE, "cat"], ["1 point ", "0.250", "0.750"]),
    ],
)
def test_answers_are_printed(terminal: Terminal, arguments: list[str], printed: list[str]) -> None:
    exit_code, out, _ = terminal.run(*arguments)
    assert exit_code == 0
    assert all(text in out for text in printed)


def test_options_reach_the_job(terminal: Terminal) -> None:
    options = (
        "--length long --temperature 0 --top-p 0.5 --max-tokens 9 --max-objects 3 --seed 7 --lane bulk --timeout 20"
        " --model moondream3"
    )
    assert terminal.run("caption", IMAGE, *options.split())[0] == 0
    [job] = terminal.transport.submitted
    assert (job.skill, job.length, job.lane) == (Skill.CAPTION, CaptionLength.LONG, "bulk")
    assert job.model == "moondream3"
    assert job.settings == Settings(temperature=0.0, top_p=0.5, max_tokens=9, max_objects=3, seed=7)
    assert terminal.config is not None and terminal.config.timeout_seconds == 20


def test_json_is_the_result_of_the_wire(terminal: Terminal) -> None:
    exit_code, out, err = terminal.run("query", IMAGE, "how many?", "--json")
    result = json.loads(out)
    assert exit_code == 0
    assert err == ""
    assert (result["status"], result["skill"], result["output"]) == (
        "completed",
        "query",
        {"answer": "two red circles"},
    )
    assert result["metrics"]["output_tokens"] == 5


def test_a_failed_job_is_one_line_and_exit_code_1(terminal: Terminal) -> None:
    terminal.transport.script = failing(Failure.of(FailureCode.IMAGE_NOT_FOUND, "nothing at s3://photos/cat.jpg"))
    exit_code, out, err = terminal.run("caption", IMAGE)
    assert (exit_code, out) == (1, "")
    assert err == "error: image_not_found: nothing at s3://photos/cat.jpg\n"
    exit_code, out, err = terminal.run("caption", IMAGE, "--json")
    answer = json.loads(out)
    assert (exit_code, err) == (1, "")
    assert answer["error"]["kind"] == "JobFailed"
    assert answer["error"]["exit_code"] == 1
    assert answer["result"]["failure"]["code"] == "image_not_found"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["query", IMAGE], "--no-image"),
        (["query", "--no-image", IMAGE, "how many?"], "--no-image"),
        (["query", "--no-image", "how many?", "--draw", "x.png"], "--draw"),
        (["caption", IMAGE, "--draw", "x.doc"], ".png"),
        (["caption", IMAGE, "--length", "epic"], "epic"),
        (["caption", IMAGE, "--temperature", "-1"], "temperature"),
        (["caption", IMAGE, "--lane", "a b"], "lane"),
        (["caption", IMAGE, "--lane", "quarantine:small"], "choose another"),
        (["caption", IMAGE, "--model", "a/b"], "model must be a short name"),
        (["caption", "absent.png"], "no file absent.png"),
        (["caption", "."], "folder"),
        (["caption", __file__], "not an image"),
        (["describe", IMAGE], "describe"),
    ],
)
def test_wrong_usage_is_exit_code_2_with_advice(terminal: Terminal, arguments: list[str], message: str) -> None:
    exit_code, out, err = terminal.run(*arguments)
    assert (exit_code, out) == (2, "")
    assert message in " ".join(err.split())
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
def test_a_queue_that_accepts_no_jobs_is_exit_code_3(terminal: Terminal, error: Exception) -> None:
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
    assert "error: cannot draw on the image: its bytes are not a readable image" in err


def test_help_lists_the_worker_without_importing_it() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from stoop.cli.app import app;"
        "print(CliRunner().invoke(app, ['--help']).stdout);"
        "print(sorted({'torch', 'worker'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "worker" in output
    assert "Exit codes" in output
    assert output.rstrip().endswith("[]")


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


def test_a_command_with_missing_packages_names_what_to_install(
    terminal: Terminal, found: Callable[[str], None]
) -> None:
    found("no_such_package:command")
    exit_code, _, err = terminal.run("greet")
    assert exit_code == 2
    assert "stoop greet needs no_such_package: reinstall the package" in err
    assert "stoop[greet]" not in err, "there is no such extra"


def test_every_listed_command_can_be_loaded_and_has_help(terminal: Terminal) -> None:
    for listed in COMMANDS:
        exit_code, out, err = terminal.run(listed.name, "--help")
        assert (exit_code, err) == (0, ""), listed.name
        assert f"Usage: root {listed.name}" in out


def commands_below(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    loaded = command._load() if hasattr(command, "_load") else command
    yield path, loaded
    for name, child in getattr(loaded, "commands", {}).items():
        yield from commands_below(child, *path, name)


@pytest.mark.parametrize(
    ("path", "command"), [pytest.param(*each, id=" ".join(each[0])) for each in commands_below(get_command(app))]
)
def test_help_cuts_no_flag_on_a_narrow_terminal(
    path: tuple[str, ...], command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = CliRunner().invoke(app, [*path, "--help"])
    shown = set(re.findall(r"--?[a-z][a-z0-9-]*", done.stdout))
    flags = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    assert {flag for flag in flags if flag.startswith("-")} - shown == set()
    assert "…" not in done.stdout


def test_help_groups_commands_by_purpose(terminal: Terminal) -> None:
    out = terminal.run("--help")[1]
    panels = ["Ask a model", "Work on many inputs", "Look after the queue", "Run"]
    places = [out.index(f"─ {panel} ─") for panel in panels]
    assert places == sorted(places)
    assert places[0] < out.index(" query ") < places[1] < places[2] < out.index(" dead ") < places[3]


def test_a_mistyped_command_is_guessed(terminal: Terminal) -> None:
    assert "Did you mean 'caption'" in terminal.run("captoin", IMAGE)[2]


def test_the_version_is_reported(terminal: Terminal) -> None:
    assert terminal.run("--version")[1].startswith("stoop 0.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["caption", "--json"], "Missing argument"),
        (["caption", IMAGE, "--json", "--length", "epic"], "epic"),
        (["caption", IMAGE, "--json", "--stream"], "--stream or --json"),
        (["caption", IMAGE, "--json", "--color"], "No such option"),
        (["captoin", IMAGE, "--json"], "Did you mean 'caption'"),
        (["dead", "purge", "--all", "--json"], "--yes"),
        (["dead", "redrive", "--json"], "name letters"),
    ],
)
def test_wrong_usage_is_reported_as_json_with_the_json_option(
    terminal: Terminal, arguments: list[str], message: str
) -> None:
    exit_code, out, err = terminal.run(*arguments)
    error = json.loads(out)["error"]
    assert (exit_code, err, error["kind"], error["exit_code"]) == (2, "", "UsageError", 2)
    assert message in error["message"]
    assert " See `root" in error["message"]


def test_a_job_may_be_left_and_read_later(terminal: Terminal) -> None:
    exit_code, job_id, _ = terminal.run("caption", IMAGE, "--no-wait")
    assert (exit_code, job_id.strip()) == (0, terminal.transport.submitted[0].id)
    assert terminal.run("result", job_id.strip())[:2] == (0, "shapes on paper\n")
    assert terminal.run("result", job_id.strip(), "--stream")[:2] == (0, "shapes on paper\n")
    result = json.loads(terminal.run("result", job_id.strip(), "--json")[1])
    assert (result["id"], result["output"]) == (job_id.strip(), {"caption": "shapes on paper"})
    assert json.loads(terminal.run("caption", IMAGE, "--no-wait", "--json")[1]) == {
        "id": terminal.transport.submitted[1].id
    }
    assert terminal.run("caption", IMAGE, "--no-wait", "--stream")[0] == 2


def test_a_job_that_is_not_known_is_reported_at_once(terminal: Terminal) -> None:
    exit_code, out, err = terminal.run("result", "no-such-job")
    assert (exit_code, out) == (1, "")
    assert "no job no-such-job" in err
    assert json.loads(terminal.run("result", "no-such-job", "--json")[1])["error"]["kind"] == "NotFound"


def test_a_timeout_names_the_commands_that_continue(terminal: Terminal) -> None:
    terminal.transport.script = None
    exit_code, _, err = terminal.run("caption", IMAGE, "--timeout", "0.01")
    assert exit_code == 4
    job_id = terminal.transport.submitted[0].id
    assert f"? `stoop result {job_id}` waits again, `stoop cancel {job_id}` ends it" in err
    assert "result()" not in err, "a shell has no such method"


def test_an_interrupt_names_the_commands_that_continue(terminal: Terminal) -> None:
    class Interrupted(Client):
        def result(self, *_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

    def connect(config: ProducerConfig) -> Client:
        return Interrupted(config, transport=terminal.transport)

    done = CliRunner().invoke(app, ["caption", IMAGE], obj=connect)
    [job] = terminal.transport.submitted
    assert (done.exit_code, done.stdout) == (130, "")
    assert f"`stoop cancel {job.id}` ends it" in done.stderr


@pytest.mark.parametrize(
    ("words", "offered"),
    [("stoop capt", "caption"), ("stoop caption --le", "--length"), ("stoop dead re", "redrive")],
)
def test_a_shell_completes_commands_and_their_options(words: str, offered: str) -> None:
    variables = {"_STOOP_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    command = [sys.executable, "-m", "stoop"]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=True)
    assert offered in done.stdout.split()
