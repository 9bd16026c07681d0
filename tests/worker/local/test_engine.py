"""The engine without a queue, on the tiny model; answers are those of the engine that a worker runs."""

import asyncio
import base64
import inspect
import io
import json
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from stoop import AsyncClient
from stoop_schemas.failure import FailureCode, Rejected
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import Output, Sampling, TextDelta
from stoop_worker.engine.thread import EngineThread
from stoop_worker.errors import CheckpointError, ConfigError, EngineFault, ImageError
from stoop_worker.local import LocalEngine
from tests.support.tiny_decoder import QWEN3, write_decoder, write_qwen_vl
from tests.support.tiny_encoder import GEMMA, RERANKER, write_encoder
from tests.support.tiny_model import write_checkpoint

PIXELS = np.random.default_rng(1).integers(0, 256, (40, 60, 3), dtype=np.uint8)
METHODS = ["query", "caption", "detect", "point", "gaze", "chat", "embed", "rerank", "transcribe", "translate", "run"]
SHORT = {"max_tokens": 4, "temperature": 0.0, "max_objects": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
async def engine(folder: Path) -> AsyncIterator[LocalEngine]:
    async with LocalEngine(folder, device="cpu", max_batch=4, threads=1, sampling=Sampling(seed=1)) as opened:
        yield opened


def png() -> bytes:
    written = io.BytesIO()
    Pillow.fromarray(PIXELS).save(written, "PNG")
    return written.getvalue()


@pytest.mark.parametrize("method", METHODS)
def test_a_method_has_the_same_parameters_as_the_clients(method: str) -> None:
    ours, theirs = (inspect.signature(getattr(kind, method)).parameters for kind in (LocalEngine, AsyncClient))
    assert [name for name in ours if name not in ("fields", "asked")] == [
        name for name in theirs if name not in ("fields", "asked")
    ]


async def test_every_skill_answers_and_sources_of_one_image_answer_alike(engine: LocalEngine, tmp_path: Path) -> None:
    (tmp_path / "photo.png").write_bytes(png())
    address = "data:image/png;base64," + base64.b64encode(png()).decode()
    sources = [PIXELS, Pillow.fromarray(PIXELS), png(), tmp_path / "photo.png", str(tmp_path / "photo.png"), address]
    answers = await asyncio.gather(*(engine.query(source, "What?", settings=SHORT) for source in sources))
    assert all(answer == answers[0] for answer in answers) and set(answers[0]) == {"answer"}
    assert set(await engine.caption(PIXELS, "short", settings=SHORT)) == {"caption"}
    assert len((await engine.detect(PIXELS, "ring", settings=SHORT))["objects"]) <= 2
    assert len((await engine.point(PIXELS, "ring", settings=SHORT))["points"]) <= 2
    assert set(await engine.gaze(PIXELS, (0.5, 0.5))) == {"gaze"}
    assert set(await engine.query(None, "What?", settings=SHORT)) == {"answer"}
    chat = [{"role": "user", "content": [{"type": "text", "text": "What?"}]}]
    assert set(await engine.chat(chat, settings=SHORT)) == {"message"}
    assert engine.figures


async def test_a_stream_is_the_answer_in_pieces(engine: LocalEngine) -> None:
    settings = {"max_tokens": 30, "temperature": 0.0}
    whole = await engine.query(PIXELS, "What?", settings=settings, reasoning=True)
    streamed = await engine.query(PIXELS, "What?", stream=True, settings=settings, reasoning=True)
    thoughts = streamed["reasoning"]["text"]
    pieces = [piece async for piece in streamed["answer"]]
    assert "".join(pieces) == whole["answer"] and thoughts == whole["reasoning"]["text"]
    assert streamed["reasoning"] == whole["reasoning"]
    assert streamed["answer"].result.metrics.output_tokens > 0


async def test_a_query_has_the_form_that_was_asked_for_after_free_reasoning(engine: LocalEngine) -> None:
    schema = {"type": "object", "properties": {"count": {"type": "integer", "maximum": 99}}, "required": ["count"]}
    form = {"type": "json_schema", "json_schema": {"schema": {**schema, "additionalProperties": False}}}
    free = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 60}
    json_settings, code_settings = {**free, "response_format": form}, {**free, "regex": "[a-d]{3}-[0-9]{2}"}
    for seed in range(3):
        alone = await engine.query(PIXELS, "How many?", settings={**free, "seed": seed}, reasoning=True)
        counted, coded, beside = await asyncio.gather(
            engine.query(PIXELS, "How many?", settings={**json_settings, "seed": seed}, reasoning=True),
            engine.query(PIXELS, "Which?", settings={**code_settings, "seed": seed}),
            engine.query(PIXELS, "How many?", settings={**free, "seed": seed}, reasoning=True),
        )
        assert set(json.loads(counted["answer"])) == {"count"}
        assert counted["reasoning"] == alone["reasoning"] and beside == alone
        assert re.fullmatch("[a-d]{3}-[0-9]{2}", coded["answer"])
    with pytest.raises(Rejected, match="cannot be used") as raised:
        await engine.query(PIXELS, "Which?", settings={"regex": "["})
    with pytest.raises(Rejected, match=r"unknown setting: 'temprature' \(did you mean 'temperature'\?\)"):
        await engine.query(PIXELS, "Which?", settings={"temprature": 0.0})
    assert raised.value.failure.code is FailureCode.INVALID_ARGUMENT


async def test_a_folder_s_own_sampling_holds_where_a_request_gives_none(tmp_path: Path) -> None:
    folder = write_decoder(tmp_path, QWEN3)
    generation = json.loads((folder / "generation_config.json").read_text())
    chat = [{"role": "user", "content": "hello"}]
    answers = []
    for own in ({"temperature": 2.0, "top_p": 1.0}, {"temperature": 2.0, "top_p": 1.0, "top_k": 1}):
        (folder / "generation_config.json").write_text(json.dumps({**generation, **own}))
        async with LocalEngine(folder, device="cpu", threads=1, max_context=512) as engine:
            drawn = await engine.chat(chat, settings={"seed": 5, "max_tokens": 20})
            given = await engine.chat(chat, settings={"seed": 5, "max_tokens": 20, **own})
            greedy = await engine.chat(chat, settings={"max_tokens": 20, "temperature": 0.0})
            assert drawn == given
            answers.append((drawn, greedy))
    (drawn, greedy), (likeliest, _) = answers
    assert drawn != greedy == likeliest


async def test_images_of_a_chat_may_be_given_in_every_form(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    folder = write_qwen_vl(tmp_path / "model")
    path = tmp_path / "noise.png"
    Pillow.fromarray(PIXELS).save(path)
    address = f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
    greedy = {"max_tokens": 6, "temperature": 0.0}

    def about(*images: object) -> list[dict[str, object]]:
        parts = [{"type": "image_url", "image_url": {"url": image}} for image in images]
        return [{"role": "user", "content": [*parts, {"type": "text", "text": "what is that"}]}]

    async with LocalEngine(folder, device="cpu", threads=1, max_context=512) as engine:
        forms = [str(path), path, path.read_bytes(), Pillow.fromarray(PIXELS), PIXELS, address]
        answers = [(await engine.chat(about(form), settings=greedy))["message"]["content"] for form in forms]
        assert len(set(answers)) == 1
        lengths = []
        for images in ([path], [path, PIXELS]):
            text = (await engine.chat(about(*images), stream=True, settings=greedy))["message"]
            assert "".join([piece async for piece in text])
            lengths.append(text.result.metrics.input_tokens)
        assert lengths[0] < lengths[1], "both images are seen"
        with pytest.raises(Rejected, match=r"\$\.messages"):
            await engine.chat("what is that", settings=greedy)  # type: ignore[arg-type]


async def test_a_stream_that_is_left_ends_its_request(engine: LocalEngine) -> None:
    streamed = await engine.caption(PIXELS, stream=True, settings={"max_tokens": 900, "temperature": 1.0})
    await anext(streamed["caption"])
    await streamed["caption"].aclose()
    assert (await engine.caption(PIXELS, settings=SHORT))["caption"] is not None


async def test_a_refusal_and_a_bad_image_fail_alone(engine: LocalEngine) -> None:
    with pytest.raises(Rejected, match="needs a question") as raised:
        await engine.query(PIXELS)
    assert raised.value.failure.code is FailureCode.MALFORMED
    with pytest.raises(Rejected, match="temperature") as raised:
        await engine.query(PIXELS, "What?", settings={"temperature": -1})
    with pytest.raises(Rejected, match="at most 1023") as raised:
        await engine.query(PIXELS, "why " * 1500)
    assert raised.value.failure.code is FailureCode.CONTEXT_OVERFLOW
    for bad in (b"no image", "/nowhere.png", "s3://bucket/key", np.zeros((2, 2))):
        with pytest.raises(ImageError):
            await engine.caption(bad)  # type: ignore[arg-type]
    assert (await engine.caption(PIXELS, settings=SHORT))["caption"] is not None


async def test_an_engine_that_ends_fails_the_waiting_calls(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step, stop = Engine.step, EngineThread.stop
    delivered: list[Output] = []
    stopping = threading.Event()

    def step_until_text(engine: Engine) -> list[Output]:
        """Step until there is text, and never again: the answer must not end before its engine does."""
        if any(isinstance(output, TextDelta) for output in delivered):
            stopping.wait()
            return []
        delivered[:] = step(engine)
        return list(delivered)

    def stop_stepping(thread: EngineThread) -> None:
        stopping.set()
        stop(thread)

    async with LocalEngine(folder, device="cpu", threads=1) as engine:
        monkeypatch.setattr(Engine, "step", step_until_text)
        monkeypatch.setattr(EngineThread, "stop", stop_stepping)
        streamed = await engine.caption(PIXELS, stream=True, settings={"max_tokens": 900, "temperature": 0.0})
        await anext(streamed["caption"])
    with pytest.raises(EngineFault, match="has ended"):
        [piece async for piece in streamed["caption"]]
    with pytest.raises(EngineFault, match="has ended"):
        await engine.caption(PIXELS)


async def test_texts_become_vectors_and_documents_get_scores(tmp_path: Path) -> None:
    async with LocalEngine(write_encoder(tmp_path / "gemma", GEMMA), device="cpu", threads=1) as embedder:
        found = np.array((await embedder.embed(["the cat", "a dog"], dimensions=12))["embeddings"])
        alone = np.array((await embedder.embed("a dog", dimensions=12))["embeddings"])
    assert found.shape == (2, 12) and np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    assert np.allclose(found[1:], alone, atol=1e-5)
    async with LocalEngine(write_encoder(tmp_path / "ranker", RERANKER), device="cpu", threads=1) as ranker:
        scores = (await ranker.rerank("the cat", ["a dog", "the cat sat", "a dog"]))["scores"]
        single = (await ranker.rerank("the cat", "the cat sat"))["scores"]
    assert scores[0] == scores[2] != scores[1]
    assert single == pytest.approx(scores[1:2], abs=1e-5)


def test_a_setting_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match="no setting speed"):
        LocalEngine("moondream2", speed=9)


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ({"dtype": "int8"}, "auto, float32 or bfloat16"),
        ({"device": "tpu"}, "auto, cpu or cuda"),
        ({"adapters": "nowhere"}, "there is no such folder"),
    ],
)
async def test_a_wrong_value_of_a_setting_is_named(setting: dict[str, str], complaint: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match=complaint):
        async with LocalEngine(folder, **{"device": "cpu", "threads": 1, **setting}):
            pass


async def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no weights"):
        async with LocalEngine(tmp_path):
            pass
