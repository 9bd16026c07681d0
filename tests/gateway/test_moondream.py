"""Moondream's routes, asked by HTTP and by Moondream's own client."""

import asyncio
import base64
import io
from typing import Any

import pytest
from PIL import Image

from stoop.demo.pictures import Picture
from tests.examples.conftest import Deployment
from tests.examples.streaming_child import words
from tests.gateway.conftest import SECONDS, GatewayProcess, events_of, http_client

COUNT = "How many shapes are there?"


@pytest.fixture
def picture(demo_deployment: tuple[Deployment, Picture, str]) -> Picture:
    return demo_deployment[1]


def raw(picture: Picture) -> str:
    return base64.b64encode(picture.encoded).decode()


async def test_every_skill_answers_every_form_of_image(
    demo_gateway: GatewayProcess, demo_deployment: tuple[Deployment, Picture, str], picture: Picture
) -> None:
    wrapped = "\n".join(raw(picture)[i : i + 76] for i in range(0, len(raw(picture)), 76))
    images = [raw(picture), wrapped, f"data:image/png;base64,{raw(picture)}", demo_deployment[2]]
    async with asyncio.timeout(SECONDS), http_client(demo_gateway) as http:
        for image in images:
            response = await http.post("/v1/query", json={"image_url": image, "question": COUNT})
            assert response.json()["answer"] == str(len(picture.shapes)), response.text
        shape = picture.shapes[0]
        body = (await http.post("/v1/detect", json={"image_url": images[0], "object": shape.name})).json()
        [box] = body["objects"]
        left, top, right, bottom = (round(value, 2) for value in shape.box)
        width, height = picture.size
        assert abs(box["x_min"] * width - left) < 0.1 * width and abs(box["y_max"] * height - bottom) < 0.1 * height
        [point] = (await http.post("/v1/point", json={"image_url": images[0], "object": shape.name})).json()["points"]
        assert left < point["x"] * width < right and top < point["y"] * height < bottom
        gaze = (await http.post("/v1/gaze", json={"image_url": images[0], "eye": [0.5, 0.25]})).json()
        assert gaze["gaze"] is None or {"x", "y"} == set(gaze["gaze"]), gaze
        asked = {"image_url": images[0], "object": "gaze", "spatial_refs": [[0.5, 0.25]]}
        body = (await http.post("/v1/point", json=asked)).json()
        assert body["points"] == ([gaze["gaze"]] if gaze["gaze"] else []) and "gaze" not in body
        body = (await http.post("/v1/caption", json={"image_url": images[0], "length": "short"})).json()
        assert body["caption"] and body["finish_reason"] == "stop"
        assert body["metrics"]["output_tokens"] > 0 and "queue_time_ms" in body["metrics"]


async def test_an_image_too_large_for_a_job_is_uploaded(demo_gateway: GatewayProcess) -> None:
    noise = Image.effect_noise((1400, 1400), 80).convert("RGB")
    written = io.BytesIO()
    noise.save(written, "PNG")
    encoded = base64.b64encode(written.getvalue()).decode()
    assert len(encoded) > 1 << 20
    async with asyncio.timeout(SECONDS), http_client(demo_gateway) as http:
        response = await http.post("/v1/caption", json={"image_url": encoded, "settings": {"max_tokens": 4}})
        assert response.status_code == 200, response.text


async def test_a_stream_sends_each_piece_and_then_the_whole(streaming_gateway: GatewayProcess) -> None:
    async with asyncio.timeout(SECONDS), http_client(streaming_gateway) as http:
        asked = {"question": "tell 12", "stream": True}
        async with http.stream("POST", "/v1/query", json=asked) as response:
            assert response.status_code == 200
            assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert response.headers["x-accel-buffering"] == "no"
            events = [event["data"] async for event in events_of(response)]
        assert "".join(each["chunk"] for each in events) == "".join(words(12))
        assert [each["completed"] for each in events] == [False] * (len(events) - 1) + [True]
        assert events[-1]["answer"] == "".join(words(12))
        assert events[-1]["job_id"] == response.headers["x-stoop-job-id"]


async def test_wrong_requests_name_the_field(demo_gateway: GatewayProcess) -> None:
    wrong: list[tuple[str, dict[str, Any], int, str, str | None]] = [
        ("/v1/query", {}, 400, "invalid_value", "question"),
        ("/v1/query", {"question": 7}, 400, "invalid_value", "question"),
        ("/v1/query", {"question": ""}, 400, "malformed", "question"),
        ("/v1/query", {"question": "x" * 9000}, 400, "invalid_argument", "question"),
        ("/v1/query", {"question": "what?", "image_url": "no base64!"}, 400, "image_undecodable", "image_url"),
        ("/v1/query", {"question": "what?", "image_url": "aGVsbG8="}, 400, "image_undecodable", None),
        ("/v1/query", {"question": "what?", "image_url": "s3://stoop/nothing.png"}, 400, "image_not_found", None),
        ("/v1/query", {"question": "what?", "stream": True, "image_url": "aGVsbG8="}, 400, "image_undecodable", None),
        (
            "/v1/query",
            {"question": "what?", "settings": {"temperature": -1}},
            400,
            "invalid_argument",
            "settings.temperature",
        ),
        (
            "/v1/query",
            {"question": "what?", "settings": {"temprature": 0}},
            400,
            "invalid_value",
            "settings.temprature",
        ),
        ("/v1/jobs", {"skill": "query", "settings": {"topk": 1}}, 400, "invalid_value", "settings.topk"),
        ("/v1/query", {"question": "what?", "settings": {"top_k": -1}}, 400, "invalid_argument", "settings.top_k"),
        ("/v1/query", {"question": "what?", "model": "gpt-4"}, 404, "model_not_found", None),
        ("/v1/query", {"question": "what?", "variant": "mine"}, 400, "invalid_argument", None),
        ("/v1/query", {"question": "what?", "settings": {"variant": "mine"}}, 400, "invalid_argument", None),
        ("/v1/query", {"question": "what?", "model": "moondream3-preview/mine@500"}, 400, "invalid_argument", None),
        ("/v1/gaze", {"image_url": "aGVsbG8=", "eye": [0.5]}, 400, "invalid_value", "eye"),
        ("/v1/query", {"question": "what?", "lane": "no lane!"}, 400, "invalid_argument", "lane"),
        ("/v1/detect", {"image_url": "aGVsbG8="}, 400, "invalid_value", "object"),
        ("/v1/segment", {"image_url": "aGVsbG8=", "object": "it"}, 400, "unsupported_skill", None),
        ("/v1/segments", {}, 404, "unknown_url", None),
    ]
    async with asyncio.timeout(SECONDS), http_client(demo_gateway) as http:
        for path, body, status, code, param in wrong:
            response = await http.post(path, json=body)
            assert (response.status_code, response.json()["error"]["code"]) == (status, code), (body, response.text)
            assert response.json()["error"]["param"] == param, (body, response.text)
            assert response.headers["x-request-id"]
        response = await http.post("/v1/query", content=b"{", headers={"content-type": "application/json"})
        assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_json")
        response = await http.post("/v1/query", content=b"[" * 100_000, headers={"content-type": "application/json"})
        assert response.status_code == 400
        assert (await http.post("/v1/query", content=b"question=x")).status_code == 415
        response = await http.get("/v1/query")
        assert (response.status_code, response.headers["allow"]) == (405, "POST")
        response = await http.put("/v1/images")
        assert (response.status_code, set(response.headers["allow"].split(", "))) == (405, {"GET", "HEAD", "POST"})


async def test_segment_is_refused_as_the_queue_refuses_it(demo_gateway: GatewayProcess) -> None:
    async with asyncio.timeout(SECONDS), http_client(demo_gateway) as http:
        body = {"image_url": "aGVsbG8=", "object": "it"}
        refused = (await http.post("/v1/segment", json=body)).json()
        queued = await http.post("/v1/jobs", json={"skill": "segment", "image": "s3://stoop/a.png", "object": "it"})
    assert refused == queued.json()
    assert refused["error"]["message"].startswith("no model here can segment: ")


async def test_moondreams_own_client(demo_gateway: GatewayProcess, picture: Picture) -> None:
    moondream = pytest.importorskip("moondream.cloud_vl")
    client = moondream.CloudVL(endpoint=f"{demo_gateway.address}/v1", api_key="any")
    image = Image.open(io.BytesIO(picture.encoded))

    def ask() -> None:
        assert client.query(image, COUNT)["answer"] == str(len(picture.shapes))
        assert "".join(client.query(image, COUNT, stream=True)["answer"]) == str(len(picture.shapes))
        assert client.caption(image, settings={"temperature": 0})["caption"]
        assert "".join(client.caption(image, stream=True)["caption"]) == client.caption(image)["caption"]
        assert len(client.detect(image, picture.shapes[0].name)["objects"]) == 1
        assert len(client.point(image, picture.shapes[0].name)["points"]) == 1
        with pytest.raises(Exception, match="400"):
            client.query(None, "")

    async with asyncio.timeout(SECONDS):
        await asyncio.to_thread(ask)
