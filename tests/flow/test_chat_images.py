"""Chats with images: a tiny random Qwen3-VL, and Moondream, from the client through Redis, S3 and the engine."""

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from stoop import AsyncClient, JobFailed
from stoop.cli.app import app
from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedS3, embedded_redis
from stoop.demo.worker_process import running_worker
from tests.flow.conftest import Service
from tests.support.tiny_decoder import write_qwen_vl

FLAGS = {"lanes": "interactive,bulk", "threads": "1", "max-context": "4096"}
GREEDY = {"temperature": 0.0, "max_tokens": 12}


@pytest.fixture(scope="module")
def config(s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProducerConfig]:
    folder = tmp_path_factory.mktemp("chat")
    model = write_qwen_vl(folder / "model")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("STOOP_REDIS_URL", raising=False)
        for name, value in s3.environment.items():
            patch.setenv(name, value)
        with embedded_redis(folder / "redis") as redis, running_worker(folder, model, redis, s3, FLAGS):
            yield ProducerConfig(
                redis_url=redis.url,
                bucket=s3.bucket,
                s3_endpoint=s3.endpoint,
                s3_region=s3.region,
                s3_path_style=True,
                timeout_seconds=60,
            )


def variables(config: ProducerConfig) -> dict[str, str]:
    """Return the environment in which a command has the client's settings."""
    return {
        "STOOP_REDIS_URL": config.redis_url.get_secret_value(),
        "STOOP_BUCKET": str(config.bucket),
        "STOOP_S3_ENDPOINT": str(config.s3_endpoint),
        "STOOP_S3_PATH_STYLE": "true",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }


def drawn(color: str, size: tuple[int, int]) -> bytes:
    encoded = io.BytesIO()
    Image.new("RGB", size, color).save(encoded, "PNG")
    return encoded.getvalue()


def about(*images: object) -> list[dict[str, object]]:
    parts = [{"type": "image_url", "image_url": {"url": image}} for image in images]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": "what is that"}]}]


async def test_a_job_with_three_images(config: ProducerConfig, tmp_path: Path) -> None:
    path = tmp_path / "red.png"
    path.write_bytes(drawn("red", (90, 60)))
    three = about(path, drawn("teal", (64, 128)), drawn("gold", (200, 40)))
    async with AsyncClient(config) as client:
        job = await client.prepare("chat", messages=three, settings=GREEDY)
        assert all(image.startswith("s3://") for image in job.images)
        result = await client.result(await client.submit(job))
        fewer = await client.prepare("chat", messages=about(path), settings=GREEDY)
        alone = await client.result(await client.submit(fewer))
    assert result.output is not None and result.output.message is not None
    # 90 x 60 is 3 x 2 cells, 64 x 128 is 2 x 4, 200 x 40 is 6 x 1
    assert result.metrics.input_tokens - alone.metrics.input_tokens == 8 + 6 + 2 * 2


async def test_an_image_that_is_not_there_fails_the_chat(config: ProducerConfig, s3: EmbeddedS3) -> None:
    async with AsyncClient(config) as client:
        with pytest.raises(JobFailed, match="image_not_found"):
            await client.chat(about(drawn("red", (64, 64)), f"s3://{s3.bucket}/chat/absent.png"), settings=GREEDY)


def test_a_chat_streams_in_the_terminal(
    config: ProducerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "red.png"
    path.write_bytes(drawn("red", (90, 60)))
    for name, value in variables(config).items():
        monkeypatch.setenv(name, value)
    sampling = ["--temperature", "0", "--max-tokens", "12"]
    once = CliRunner().invoke(app, ["chat", "what is that", "--image", str(path), *sampling])
    spoken = f"/image {path}\nwhat is that\nand that\n\n"
    conversation = CliRunner().invoke(app, ["chat", *sampling], input=spoken)
    schema = tmp_path / "schema.json"
    schema.write_text('{"enum": ["cat", "dog"]}')
    formed = CliRunner().invoke(app, ["chat", "cat or dog", "--response-format", str(schema), *sampling])
    assert formed.stdout.strip() in ('"cat"', '"dog"'), formed.output
    missing = CliRunner().invoke(app, ["chat", "cat or dog", "--response-format", str(tmp_path / "none")])
    assert missing.exit_code == 2 and "--response-format" in missing.stderr
    assert once.exit_code == 0, once.output
    assert conversation.exit_code == 0, conversation.output
    assert conversation.stdout.startswith(once.stdout.rstrip("\n"))
    assert len(conversation.stdout) > len(once.stdout)


def test_the_script_of_the_guide_holds_a_chat(config: ProducerConfig, tmp_path: Path) -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "python.md").read_text(encoding="utf-8")
    [script] = [each for each in re.findall(r"```python\n(.*?)```", guide, re.DOTALL) if "client.chat(" in each]
    assert 'Client(job_model="qwen3-vl-4b")' in script
    (tmp_path / "photo.png").write_bytes(drawn("red", (90, 60)))
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", script.replace('job_model="qwen3-vl-4b"', "")],
        env={**os.environ, **variables(config)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_at_a_terminal_a_failed_question_does_not_end_the_conversation(config: ProducerConfig, tmp_path: Path) -> None:
    terminal, stdin = os.openpty()
    settings = variables(config)
    process = subprocess.Popen(
        [sys.executable, "-m", "stoop", "chat", "--temperature", "0", "--max-tokens", "12"],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **settings},
    )
    os.close(stdin)
    lines = ["what is that", "/image", f"/image {tmp_path / 'none.png'}", "and that", "and that", ""]
    os.write(terminal, "".join(f"{line}\n" for line in lines).encode())
    answers, asides = process.communicate(timeout=60)
    os.close(terminal)
    assert process.returncode == 0, asides
    assert asides.count("/image FILE adds") == 2, "at the start, and after /image without a file"
    assert asides.count("there is no file") == 1
    said = "what is that\nand that\n\n"
    expected = CliRunner(env=settings).invoke(app, ["chat", "--temperature", "0", "--max-tokens", "12"], input=said)
    assert answers.replace("> ", "").split() == expected.stdout.split(), "the failed question left no trace"


async def test_moondream_answers_a_chat_about_one_image_as_a_query(client: AsyncClient, service: Service) -> None:
    question = "How many shapes are there?"
    image = {"type": "image_url", "image_url": {"url": service.image}}
    messages = [{"role": "user", "content": [image, {"type": "text", "text": question}]}]
    asked = await client.query(service.image, question, settings=GREEDY)
    assert (await client.chat(messages, settings=GREEDY))["message"]["content"] == asked["answer"]
    with pytest.raises(JobFailed, match="one user message"):
        await client.chat([*messages, {"role": "assistant", "content": "2"}, *messages], settings=GREEDY)
