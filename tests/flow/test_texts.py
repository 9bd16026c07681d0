"""Vectors and scores from tiny random models, from the client through Redis and the engine, and back."""

import contextlib
import json
import math
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from stoop import Client, JobFailed
from stoop.cli.app import app
from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedS3, embedded_redis
from stoop.demo.worker_process import running_worker
from tests.support.tiny_encoder import GEMMA, RERANKER, write_encoder

TEXTS = ["the cat sat on the mat", "what is the capital of france", "a"]


@pytest.fixture(scope="module")
def config(s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProducerConfig]:
    """A queue with a worker that embeds, and one that ranks in the lane `ranks`."""
    folder = tmp_path_factory.mktemp("texts")
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.delenv("STOOP_REDIS_URL", raising=False)
        redis = stack.enter_context(embedded_redis(folder / "redis"))
        for lane, model in (("interactive", GEMMA), ("ranks", RERANKER)):
            written = write_encoder(folder / lane / "model", model)
            flags = {"lanes": lane, "threads": "1"}
            stack.enter_context(running_worker(folder / lane, str(written), redis, s3, flags))
        yield ProducerConfig(redis_url=redis.url, timeout_seconds=60)


@pytest.fixture
def client(config: ProducerConfig) -> Iterator[Client]:
    with Client(config) as client:
        yield client


@pytest.fixture
def ranker(config: ProducerConfig) -> Iterator[Client]:
    with Client(config, lane="ranks") as client:
        yield client


def test_vectors_come_in_the_order_of_the_texts_and_have_length_1(client: Client) -> None:
    found = client.embed(TEXTS)["embeddings"]
    assert [len(vector) for vector in found] == [48] * 3
    assert all(math.isclose(math.hypot(*vector), 1, abs_tol=1e-6) for vector in found)
    alone = client.embed(TEXTS[1])["embeddings"][0]
    assert sum(a * b for a, b in zip(found[1], alone, strict=True)) > 1 - 1e-6
    assert sum(a * b for a, b in zip(found[0], alone, strict=True)) < 0.999


def test_a_prompt_and_fewer_dimensions_change_the_vectors(client: Client) -> None:
    plain = client.embed(TEXTS, dimensions=12)["embeddings"]
    prompted = client.embed(TEXTS, prompt_name="query", dimensions=12)["embeddings"]
    assert {len(vector) for vector in plain + prompted} == {12}
    assert plain != prompted


def test_a_text_seen_before_is_read_from_the_cache(client: Client) -> None:
    for expected in ("none", "all"):
        job = client.prepare("embed", input=["a text that no other test has"])
        metrics = client.result(client.submit(job)).metrics
        assert metrics.cached_tokens == (metrics.input_tokens if expected == "all" else 0)


def test_too_long_a_text_fails_unless_it_may_be_cut(client: Client) -> None:
    long = "the cat sat on the mat " * 100
    with pytest.raises(JobFailed, match=r"at most 256; shorten it, or set truncate") as failed:
        client.embed(long)
    assert failed.value.result.failure is not None
    assert failed.value.result.failure.code == "context_overflow"
    assert len(client.embed(long, truncate=True)["embeddings"]) == 1


def test_scores_come_in_the_order_of_the_documents(ranker: Client) -> None:
    forward = ranker.rerank("what is the capital of france", TEXTS)["scores"]
    backward = ranker.rerank("what is the capital of france", TEXTS[::-1])["scores"]
    assert len(set(forward)) == 3
    assert forward == pytest.approx(backward[::-1], abs=1e-5)
    assert ranker.rerank("what is the capital of france", TEXTS[0])["scores"] == pytest.approx(forward[:1], abs=1e-5)


def test_a_skill_that_the_model_lacks_is_refused_by_name(client: Client) -> None:
    with pytest.raises(JobFailed, match="this model cannot rerank: it can embed"):
        client.rerank("a", ["b"])


def test_the_command_line_embeds_its_arguments_or_the_lines_of_its_input(config: ProducerConfig) -> None:
    def connect(_: ProducerConfig) -> Client:
        return Client(config)

    given = CliRunner().invoke(app, ["embed", "the cat", "a dog", "--json"], obj=connect)
    read = CliRunner().invoke(app, ["embed", "--json"], obj=connect, input="the cat\n\na dog\n")
    assert given.exit_code == read.exit_code == 0, given.output
    answers = [json.loads(ran.stdout)["output"]["embeddings"] for ran in (given, read)]
    assert answers[0] == answers[1] and len(answers[0]) == 2
    shown = CliRunner().invoke(app, ["embed", "the cat"], obj=connect)
    assert "(48 values)" in shown.stdout
    usage = json.loads(given.stdout)["metrics"]
    assert usage["input_tokens"] > 0 and " tokens read" in shown.stderr


def test_the_command_line_ranks_the_best_document_first(config: ProducerConfig) -> None:
    def connect(_: ProducerConfig) -> Client:
        return Client(config, lane="ranks")

    ran = CliRunner().invoke(app, ["rerank", "what is the capital", *TEXTS], obj=connect)
    assert ran.exit_code == 0, ran.output
    scores = [float(line.split()[0]) for line in ran.stdout.splitlines()]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)
