"""Embeddings and rerank over HTTP, on tiny random models."""

import asyncio
import contextlib
import math
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from stoop import Client
from stoop.cli.app import app
from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedS3, embedded_redis
from stoop.demo.worker_process import running_worker
from tests.examples.conftest import new_deployment
from tests.gateway.conftest import GRPC, SECONDS, GatewayProcess, _start_gateway, http_client
from tests.gateway.grpc.client import grpc_client, inputs, text_of
from tests.support.tiny_encoder import BGE_M3, GEMMA, RERANKER, write_encoder

openai = pytest.importorskip("openai")

TEXTS = ["the cat sat on the mat", "what is the capital of france", "a"]


@pytest.fixture(scope="module")
def texts(s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayProcess, ProducerConfig]]:
    """A gateway before two models that embed and one that ranks."""
    folder = tmp_path_factory.mktemp("texts")
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.delenv("STOOP_REDIS_URL", raising=False)
        redis = stack.enter_context(embedded_redis(folder / "redis"))
        for name, model in (("embedder", GEMMA), ("ranker", RERANKER), ("m3", BGE_M3)):
            written = write_encoder(folder / name / "model", model)
            flags = {"model-name": name, "lanes": "interactive,bulk", "threads": "1"}
            stack.enter_context(running_worker(folder / name, str(written), redis, s3, flags))
        gateway = _start_gateway(folder, new_deployment(redis, s3), "--open", *GRPC)
        stack.callback(gateway.server.end, signal.SIGKILL)
        yield gateway, ProducerConfig(redis_url=redis.url, timeout_seconds=60)


async def test_vectors_are_those_of_the_client_in_every_form(texts: tuple[GatewayProcess, ProducerConfig]) -> None:
    gateway, config = texts
    wanted = await asyncio.to_thread(vectors, config)
    official = openai.AsyncOpenAI(base_url=f"{gateway.address}/v1", api_key="any", timeout=SECONDS)
    async with asyncio.timeout(SECONDS), official, http_client(gateway) as http:
        embeddings = await official.embeddings.create(model="embedder", input=TEXTS)
        assert [each.embedding for each in embeddings.data] == wanted
        assert embeddings.usage.total_tokens == embeddings.usage.prompt_tokens > len(TEXTS)
        plain = await official.embeddings.create(model="embedder", input=TEXTS[0], encoding_format="float")
        assert plain.data[0].embedding == pytest.approx(wanted[0], abs=1e-6)
        short = await official.embeddings.create(model="embedder", input=TEXTS[0], dimensions=16)
        assert math.isclose(math.hypot(*short.data[0].embedding), 1, abs_tol=1e-5)
        assert len(short.data[0].embedding) == 16
        llama = (await http.post("/embedding", json={"content": TEXTS, "model": "embedder"})).json()
        assert [each["embedding"][0] for each in llama] == [pytest.approx(vector, abs=1e-6) for vector in wanted]


def test_vectors_and_scores_by_grpc_are_those_of_the_client(texts: tuple[GatewayProcess, ProducerConfig]) -> None:
    gateway, config = texts
    with grpc_client(gateway.grpc) as client:
        found = text_of(client.infer("embedder", inputs("embed", input=TEXTS)))["embeddings"]
        assert found == [pytest.approx(vector, abs=1e-6) for vector in vectors(config)]
        assert len(text_of(client.infer("ranker", inputs("rerank", query="cats", documents=TEXTS)))["scores"]) == 3
        deadline = time.monotonic() + SECONDS
        while set(found := states(client)) == {"embedder", "ranker", "m3"} and set(found.values()) != {"READY"}:
            assert time.monotonic() < deadline, found
            time.sleep(0.1)  # on a busy machine, a lease may run out before it is renewed
        assert found == dict.fromkeys(("embedder", "ranker", "m3"), "READY")


def states(client: Any) -> dict[str, str]:
    index = client.get_model_repository_index(as_json=True)["models"]
    return {each["name"]: each["state"] for each in index}


def vectors(config: ProducerConfig) -> list[list[float]]:
    with Client(config, job_model="embedder") as client:
        return client.embed(TEXTS)["embeddings"]


async def test_vectors_of_other_kinds_come_by_an_extension(texts: tuple[GatewayProcess, ProducerConfig]) -> None:
    gateway, config = texts
    wanted = await asyncio.to_thread(all_kinds, config)
    assert wanted.keys() == {"embeddings", "sparse", "colbert"}
    async with asyncio.timeout(SECONDS), http_client(gateway) as http:
        body = {"model": "m3", "input": TEXTS, "kinds": ["colbert", "sparse"]}
        data = (await http.post("/v1/embeddings", json=body)).json()["data"]
        assert [each["sparse"] for each in data] == [
            {"indices": each["indices"], "values": pytest.approx(each["values"], abs=1e-6)} for each in wanted["sparse"]
        ]
        assert [each["colbert"]["count"] for each in data] == list(map(len, wanted["colbert"]))
        assert all("embedding" not in each for each in data)
        whole = (await http.post("/v1/embeddings", json={**body, "kinds": ["dense", "sparse"]})).json()["data"]
        assert [each["embedding"] for each in whole] == [
            pytest.approx(vector, abs=1e-6) for vector in wanted["embeddings"]
        ]
        for model, kinds, message in (("embedder", ["sparse"], "no sparse vectors"), ("m3", ["lexical"], "kinds")):
            refused = await http.post("/v1/embeddings", json={"model": model, "input": "a", "kinds": kinds})
            assert (refused.status_code, message in refused.json()["error"]["message"]) == (400, True)


async def test_a_prompt_of_the_model_and_the_cut_of_a_long_text_are_extensions(
    texts: tuple[GatewayProcess, ProducerConfig],
) -> None:
    gateway, config = texts
    wanted = await asyncio.to_thread(prompted, config)
    async with asyncio.timeout(SECONDS), http_client(gateway) as http:

        async def post(**body: Any) -> dict[str, Any]:
            return (await http.post("/v1/embeddings", json={"model": "embedder", **body})).json()

        found = await post(input=TEXTS, prompt_name="query")
        assert [each["embedding"] for each in found["data"]] == [pytest.approx(vector, abs=1e-6) for vector in wanted]
        assert "no prompt named 'nothing'" in (await post(input="a", prompt_name="nothing"))["error"]["message"]
        long = "the cat sat on the mat " * 100
        assert (await post(input=long))["error"]["code"] == "context_length_exceeded"
        assert (await post(input=long, truncate=True))["usage"]["prompt_tokens"] == 256


def prompted(config: ProducerConfig) -> list[list[float]]:
    with Client(config, job_model="embedder") as client:
        found = client.embed(TEXTS, prompt_name="query")["embeddings"]
        assert found != client.embed(TEXTS)["embeddings"]
        return found


def all_kinds(config: ProducerConfig) -> dict[str, Any]:
    with Client(config, job_model="m3") as client:
        found = client.embed(TEXTS, kinds=["dense", "sparse", "colbert"])
    for vectors in found["colbert"]:
        assert all(math.isclose(math.hypot(*vector), 1, abs_tol=1e-5) for vector in vectors)
    return found


def test_the_command_line_shows_and_stores_all_kinds(
    texts: tuple[GatewayProcess, ProducerConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ["--kind", "sparse", "--kind", "dense", "--kind", "colbert"]
    monkeypatch.setenv("STOOP_REDIS_URL", texts[1].redis_url.get_secret_value())
    wanted = all_kinds(texts[1])

    def embed(*arguments: str) -> str:
        ran = CliRunner().invoke(app, [*arguments, "--model", "m3", *kinds])
        assert ran.exit_code == 0, ran.output
        return ran.stdout

    output = embed("embed", *TEXTS)
    assert "(64 values)" in output and f"{len(wanted['colbert'][0])} token vectors" in output
    first = wanted["sparse"][0]
    assert f"{first['indices'][first['values'].index(max(first['values']))]}: {max(first['values']):.3f}" in output
    (tmp_path / "texts.csv").write_text("id,text\n" + "".join(f"t{n},{text}\n" for n, text in enumerate(TEXTS)))
    embed("bulk-embed", str(tmp_path / "texts.csv"), "--out", str(tmp_path / "out"))
    table = pq.read_table(tmp_path / "out" / "vectors-00000.parquet").to_pydict()
    assert table["id"] == ["t0", "t1", "t2"]
    assert table["vector"] == [pytest.approx(vector, abs=1e-6) for vector in wanted["embeddings"]]
    assert [each["indices"] for each in table["sparse"]] == [each["indices"] for each in wanted["sparse"]]
    assert [each["values"] for each in table["sparse"]] == [
        pytest.approx(each["values"], abs=1e-6) for each in wanted["sparse"]
    ]
    for stored, vectors in zip(table["colbert"], wanted["colbert"], strict=True):
        assert stored == [pytest.approx(vector, abs=1e-6) for vector in vectors]


async def test_documents_come_best_first(texts: tuple[GatewayProcess, ProducerConfig]) -> None:
    async with asyncio.timeout(SECONDS), http_client(texts[0]) as http:
        body = {"model": "ranker", "query": "cat", "documents": [TEXTS[0], {"text": TEXTS[1]}, TEXTS[2]]}
        whole = (await http.post("/v1/rerank", json={**body, "return_documents": True})).json()
        scores = [each["relevance_score"] for each in whole["results"]]
        assert scores == sorted(scores, reverse=True) and 0 < min(scores) <= max(scores) < 1
        assert [TEXTS[each["index"]] for each in whole["results"]] == [
            each["document"]["text"] for each in whole["results"]
        ]
        assert whole["usage"]["total_tokens"] > 0
        best = (await http.post("/rerank", json={**body, "top_n": 1})).json()["results"]
        assert best == [{name: whole["results"][0][name] for name in ("index", "relevance_score")}]
        refused = await http.post("/v1/rerank", json={**body, "top_n": -1})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "top_n")


async def test_a_model_without_the_skill_and_too_many_texts_are_refused(
    texts: tuple[GatewayProcess, ProducerConfig],
) -> None:
    async with asyncio.timeout(SECONDS), http_client(texts[0]) as http:
        for model, given, code in (
            ("ranker", "hello", "model_not_found"),
            ("embedder", ["a"] * 2_049, "invalid_value"),
            ("embedder", [[87]], "unsupported_value"),
        ):
            error = (await http.post("/v1/embeddings", json={"model": model, "input": given})).json()["error"]
            assert error["code"] == code
            if len(given) == 2_049:
                assert "2049 texts" in error["message"] and "2048" in error["message"]
        for wrong, param in (({"dimensions": 0}, "dimensions"), ({"input": "a" * 1_100_000}, "input")):
            body = {"model": "embedder", "input": "a", **wrong}
            assert (await http.post("/v1/embeddings", json=body)).json()["error"]["param"] == param
        many = {"model": "embedder", "input": ["a"] * 257}
        later = await http.post("/v1/embeddings", json=many, headers={"prefer": "respond-async"})
        assert (later.status_code, later.json()["error"]["code"]) == (400, "unsupported_value")


async def test_more_texts_than_a_job_takes_are_answered_in_order(texts: tuple[GatewayProcess, ProducerConfig]) -> None:
    given = [f"{TEXTS[number % 3]} {number}" for number in range(600)]
    async with asyncio.timeout(SECONDS), http_client(texts[0]) as http:
        body = {"model": "embedder", "input": given}
        answer = await http.post("/v1/embeddings", json=body, headers={"idempotency-key": "many"})
        again = await http.post("/v1/embeddings", json=body, headers={"idempotency-key": "many"})
        found = answer.json()
        assert again.json() == found and again.headers["x-stoop-job-id"] == answer.headers["x-stoop-job-id"]
        assert len(answer.headers["x-stoop-job-id"].split(", ")) == 3
        assert [each["index"] for each in found["data"]] == list(range(600))
        for number in (0, 255, 256, 599):
            alone = (await http.post("/v1/embeddings", json={**body, "input": given[number]})).json()
            assert found["data"][number]["embedding"] == pytest.approx(alone["data"][0]["embedding"], abs=1e-5)

        ranked = {"model": "ranker", "query": "cat", "documents": given[:300]}
        results = (await http.post("/v1/rerank", json=ranked)).json()["results"]
        assert sorted(each["index"] for each in results) == list(range(300))
        scores = [each["relevance_score"] for each in results]
        assert scores == sorted(scores, reverse=True)


async def test_one_bad_text_refuses_a_request_of_several_jobs(texts: tuple[GatewayProcess, ProducerConfig]) -> None:
    async with asyncio.timeout(SECONDS), http_client(texts[0]) as http:
        given = ["a"] * 300 + ["long " * 2_000]
        answer = await http.post("/v1/embeddings", json={"model": "embedder", "input": given})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
        # the header and the message name the job with the bad text, not another one that was cancelled
        job = (await http.get(f"/v1/jobs/{answer.headers['x-stoop-job-id']}")).json()
        assert (job["status"], job["result"]["failure"]["code"]) == ("failed", "context_overflow")
        assert error["message"].endswith(f"(job {job['id']})")
