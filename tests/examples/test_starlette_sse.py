"""The back end that relays tokens, over HTTP and in a browser."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from stoop.demo.pictures import Picture
from stoop_schemas import names
from tests.examples.conftest import EXAMPLES, Deployment, Start
from tests.examples.streaming_child import words
from tests.support.browser import open_browser

httpx = pytest.importorskip("httpx")
pytest.importorskip("sse_starlette")
pytest.importorskip("uvicorn")

COMMAND = ("-m", "uvicorn", "app:app", "--app-dir", str(EXAMPLES / "starlette_sse"), "--port", "0")
SECONDS = 60.0


def back_end(start: Start, deployment: Deployment) -> str:
    ready = r"running on (http://\S+)"
    return start("starlette_sse", *COMMAND, ready=ready, environment=deployment.variables)


@asynccontextmanager
async def calling(address: str) -> AsyncIterator[Any]:
    async with httpx.AsyncClient(base_url=address, timeout=SECONDS, trust_env=False) as http:
        yield http


async def ask(http: Any, question: str, image: bytes = b"") -> str:
    response = await http.post("/jobs", params={"question": question}, content=image)
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


async def events(http: Any, job_id: str, after: str | None = None) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
    """Yield the id and the data of each event as a browser would see it, until the server ends the stream."""
    headers = {} if after is None else {"last-event-id": after}
    async with http.stream("GET", f"/jobs/{job_id}/events", headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if line and name:
                fields[name] = value
            elif "data" in fields:
                event = json.loads(fields["data"])
                assert (fields["event"], fields["id"]) == (event["type"], str(event["seq"]))
                yield fields["id"], event
                fields = {}


async def test_a_broken_connection_continues_with_the_next_word(
    streaming_deployment: Deployment, start: Start, gate: Path
) -> None:
    async with asyncio.timeout(SECONDS), calling(back_end(start, streaming_deployment)) as http:
        job_id = await ask(http, f"tell 40 until {gate}")
        pieces: list[str] = []
        last = ""
        # the job stands still in its middle: the connection is broken off when all of that half has come
        stream = events(http, job_id)
        async for seen, event in stream:
            last = seen
            pieces += [event["text"]] if event["type"] == "delta" else []
            if "".join(pieces) == "".join(words(40)[:20]):
                break
        await stream.aclose()
        gate.touch()
        async for _, event in events(http, job_id, last):
            assert event["type"] in ("delta", "finished")
            pieces += [event["text"]] if event["type"] == "delta" else []
        assert "".join(pieces) == "".join(words(40))


async def test_a_browser_that_comes_again_after_the_end_is_sent_away(
    streaming_deployment: Deployment, start: Start
) -> None:
    async with asyncio.timeout(SECONDS), calling(back_end(start, streaming_deployment)) as http:
        job_id = await ask(http, "tell 3")
        *_, last = [seen async for seen, _ in events(http, job_id)]
        for _ in range(2):
            again = await http.get(f"/jobs/{job_id}/events", headers={"last-event-id": last})
            assert (again.status_code, again.content) == (204, b"")
        async with Redis.from_url(streaming_deployment.redis_url, protocol=2) as redis:
            await redis.delete(names.log(job_id))
        again = await http.get(f"/jobs/{job_id}/events", headers={"last-event-id": last})
        assert again.status_code == 204, "the log of events may have gone by then"
        rest = [event async for seen, event in events(http, job_id, "1")]
        assert [(event["type"], str(event["seq"])) for event in rest] == [("finished", last)]


async def test_every_break_and_another_back_end(streaming_deployment: Deployment, start: Start) -> None:
    """A connection cut after each event in turn continues at another process: none keeps state of a job."""
    addresses = [back_end(start, streaming_deployment), back_end(start, streaming_deployment)]
    async with asyncio.timeout(SECONDS), calling(addresses[0]) as one, calling(addresses[1]) as other:
        job_id = await ask(one, "tell 12")
        whole = [event async for _, event in events(one, job_id)]
        assert "".join(event["text"] for event in whole if event["type"] == "delta") == "".join(words(12))
        for i in range(len(whole) - 1):
            rest = [event async for _, event in events(other, job_id, str(whole[i]["seq"]))]
            assert rest == whole[i + 1 :]


async def test_redis_may_restart_in_the_middle(streaming_deployment: Deployment, start: Start, gate: Path) -> None:
    async with asyncio.timeout(SECONDS), calling(back_end(start, streaming_deployment)) as http:
        job_id = await ask(http, f"tell 40 until {gate}")
        text = ""
        async for _, event in events(http, job_id):
            text = "" if event["type"] == "restarted" else text + event.get("text", "")
            if text == "".join(words(40)[:20]) and not gate.exists():
                streaming_deployment.redis.kill()
                assert [each async for each in events(http, job_id)] == [], "who comes now may come again"
                streaming_deployment.redis.restart()
                gate.touch()
        assert text == "".join(words(40))


async def test_an_image_is_uploaded_and_its_answer_is_streamed(
    demo_deployment: tuple[Deployment, Picture, str], start: Start
) -> None:
    deployment, picture, _ = demo_deployment
    async with asyncio.timeout(SECONDS), calling(back_end(start, deployment)) as http:
        job_id = await ask(http, "How many shapes are there?", picture.encoded)
        *_, (_, last) = [each async for each in events(http, job_id)]
        assert last["type"] == "finished"
        assert last["result"]["output"]["answer"] == str(len(picture.shapes))


async def test_requests_that_cannot_work_are_refused(streaming_deployment: Deployment, start: Start) -> None:
    async with asyncio.timeout(SECONDS), calling(back_end(start, streaming_deployment)) as http:
        assert (await http.post("/jobs")).status_code == 400, "no question"
        assert (await http.post("/jobs?question=what", content=b"no image")).status_code == 400
        assert (await http.post("/jobs?question=what", content=bytes((20 << 20) + 1))).status_code == 413
        assert (await http.get("/jobs/nobody/events")).status_code == 404
        job_id = await ask(http, "hello")
        assert [event async for _, event in events(http, job_id, "nonsense")][-1]["type"] == "finished"


async def test_a_page_that_is_loaded_again_in_the_middle_shows_every_word_once(
    streaming_deployment: Deployment, start: Start, gate: Path, tmp_path: Path
) -> None:
    playwright = pytest.importorskip("playwright.async_api")
    half, whole = "".join(words(40)[:20]), "".join(words(40))
    address = back_end(start, streaming_deployment)
    async with asyncio.timeout(SECONDS), open_browser() as page:
        await page.goto(address)
        await page.evaluate(SEEN)
        await page.fill("[name=question]", f"tell 40 until {gate}")
        await page.click("button")
        answer = page.locator("#answer")
        await playwright.expect(answer).to_have_text(half, timeout=20_000)
        assert await page.text_content("#state") == "running", "the words are there while the job runs"
        assert len(await page.evaluate("seen")) > 2, "they came one after the other"
        await page.screenshot(path=tmp_path / "half.png")
        await page.reload()
        await playwright.expect(answer).to_have_text(half, timeout=20_000)
        await page.evaluate(SEEN)
        gate.touch()
        await playwright.expect(page.locator("#state")).to_have_text("finished", timeout=20_000)
        assert await answer.text_content() == whole
        seen = await page.evaluate("seen")
        assert all(whole.startswith(text) for text in seen), "at no moment was a word missing or doubled"
        assert seen == sorted(seen, key=len) and len(seen) > 2
        await page.screenshot(path=tmp_path / "whole.png")
        assert re.search(r"/#[0-9a-f]{32}-0$", page.url), "the job's id is in the page's address"


# Keeps every text that the answer has had.
SEEN = """() => {
  window.seen = [];
  const answer = document.getElementById("answer");
  new MutationObserver(() => seen.push(answer.textContent)).observe(answer, { childList: true, characterData: true });
}"""
