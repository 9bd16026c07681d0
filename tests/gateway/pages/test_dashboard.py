"""The dashboard in a real browser, and the routes behind it."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from stoop.demo.child_server import ChildServer
from stoop_schemas import names
from tests.examples.conftest import Deployment
from tests.gateway.conftest import SECONDS, GatewayProcess, StartGateway, http_client
from tests.gateway.pages.conftest import Browsing
from tests.gateway.test_keys import keys

expect = pytest.importorskip("playwright.async_api").expect
expect.set_options(timeout=20_000)

HOSTILE = "<img src=x onerror=document.title='hacked'>"


async def bury(redis: Any, count: int, message: str, question: str = "hello", **more: str) -> list[str]:
    """Put dead letters where workers put them; return the ids of their jobs."""
    ids = [names.new_id() for _ in range(count)]
    pipe = redis.pipeline()
    for i, job_id in enumerate(ids):
        job = {"v": 1, "id": job_id, "skill": "query", "question": question}
        failure = {"code": "attempts_exhausted", "message": message.format(i)}
        letter = {"id": job_id, "lane": "interactive", "attempt": "3", "failure": json.dumps(failure)}
        pipe.xadd(names.dead(), {**letter, "j": json.dumps(job), **more})
    letters = await pipe.execute()
    for job_id, letter in zip(ids, letters, strict=True):
        failure = {"code": "attempts_exhausted", "message": "every attempt failed", "retryable": False}
        pipe.set(
            names.result(job_id), json.dumps({"v": 1, "id": job_id, "status": "failed", "failure": failure}), ex=600
        )
        pipe.hset(names.job(job_id), mapping={"state": "failed", "letter": letter, "queued_at": 1, "finished_at": 2})
    await pipe.execute()
    return ids


async def test_dead_letters_are_grouped_redriven_and_answered(
    streaming_deployment: Deployment, streaming_gateway: GatewayProcess, browsing: Browsing
) -> None:
    async with (
        asyncio.timeout(SECONDS),
        Redis.from_url(streaming_deployment.redis_url, protocol=2) as redis,
        http_client(streaming_gateway) as http,
        browsing() as page,
    ):
        lost = await bury(redis, 2, "s3://photos/{0}.jpg timed out after {0} s")
        await bury(redis, 3, HOSTILE + " {0}", question=HOSTILE)
        await page.goto(f"{streaming_gateway.address}/dashboard")
        causes = page.locator("#causes li")
        await expect(causes).to_have_count(2)
        assert HOSTILE.partition("=")[0] in await causes.first.inner_text(), "the most frequent cause, as text"
        await causes.last.get_by_role("button", name="Show").click()
        await expect(page.locator("#letters tr")).to_have_count(2)
        await page.locator("#letters button").first.click()
        await expect(page.locator("#job")).to_contain_text("attempts_exhausted")
        await causes.last.get_by_role("button", name="Redrive").click()
        await expect(page.locator("#confirm-title")).to_have_text("Redrive 2 dead letters?")
        await page.locator("#confirm-yes").click()
        await expect(page.locator("#dead-done")).to_have_text("2 sent back to their lanes.")
        for job_id in lost:
            while (await http.get(f"/v1/jobs/{job_id}")).json()["status"] != "completed":
                await asyncio.sleep(0.05)
        await expect(causes).to_have_count(1)
        await page.get_by_role("button", name="Purge all").click()
        await page.locator("#confirm-yes").click()
        await expect(page.locator("#dead-done")).to_have_text("3 deleted.")
        assert await redis.xlen(names.dead()) == 0
        await page.locator("#job-id").fill(lost[0])
        await page.get_by_role("button", name="Show", exact=True).click()
        await expect(page.locator("#job .timeline")).to_contain_text("Ended")
        assert await page.title() == "Stoop dashboard", "no text became markup"


async def test_dead_letters_are_searched_and_purged_by_the_search(
    killable_worker: tuple[Deployment, ChildServer], start_gateway: StartGateway, browsing: Browsing
) -> None:
    deployment, _ = killable_worker
    gateway = start_gateway(deployment, "--open")
    async with (
        asyncio.timeout(SECONDS),
        Redis.from_url(deployment.redis_url, protocol=2) as redis,
        http_client(gateway) as http,
        browsing() as page,
    ):
        [late, *_] = await bury(redis, 60, "s3://photos/{0}.jpg timed out", lane="bulk", tenant="acme")
        await bury(redis, 2, "s3://photos/{0}.jpg timed out", tenant="other")
        await bury(redis, 3, HOSTILE)
        await page.goto(f"{gateway.address}/dashboard")
        rows, found = page.locator("#letters tr"), page.get_by_label("Search in dead letters")

        async def search(text: str) -> None:
            await found.fill(text)
            await found.press("Enter")

        await search("Timed OUT acme")
        await expect(rows).to_have_count(50)
        await page.get_by_role("button", name="More").click()
        await expect(rows).to_have_count(60)
        await search("acme other")
        await expect(page.locator("#letters-title")).to_have_text("No letter has “acme other”")
        for text, count in ((late, 1), ("bulk 7.jpg", 6), ("<IMG", 3), ("attempts_exhausted interactive", 5)):
            await search(text)
            await expect(rows).to_have_count(count)
        await page.get_by_role("button", name="Purge found").click()
        await expect(page.locator("#confirm-title")).to_have_text("Purge 5 dead letters?")
        await page.locator("#confirm-yes").click()
        await expect(page.locator("#dead-done")).to_have_text("5 deleted.")
        chosen = {"search": "acme", "code": "attempts_exhausted", "dry_run": True}
        assert (await http.post("/v1/dead/redrive", json=chosen)).json()["matched"] == 60
        assert await redis.xlen(names.dead()) == 60


async def test_a_lane_is_paused_from_the_keyboard_and_its_jobs_shown(
    streaming_deployment: Deployment, streaming_gateway: GatewayProcess, browsing: Browsing
) -> None:
    async with (
        asyncio.timeout(SECONDS),
        Redis.from_url(streaming_deployment.redis_url, protocol=2) as redis,
        http_client(streaming_gateway) as http,
        browsing() as page,
    ):
        await redis.zadd(names.delayed(), {"late": 4e12})
        await page.goto(f"{streaming_gateway.address}/dashboard")
        await expect(page.locator("#held tr")).to_contain_text("late")
        await redis.zrem(names.delayed(), "late")
        await expect(page.locator("#held-card")).to_be_hidden()
        await page.get_by_role("button", name="Pause bulk").focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="Resume bulk")).to_be_focused()
        waiting = await http.post("/v1/jobs", json={"skill": "query", "question": HOSTILE, "lane": "bulk"})
        await page.locator("#job-id").fill(waiting.json()["id"])
        await page.get_by_role("button", name="Show", exact=True).click()
        await page.get_by_text("Question, picture and answer").click()
        await expect(page.locator("#job .text").first).to_have_text(HOSTILE)
        await page.get_by_role("button", name="Cancel job").click()
        await expect(page.locator("#job .facts")).to_contain_text("cancelled")
        await page.get_by_role("button", name="Resume bulk").focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="Pause bulk")).to_be_focused()
        await expect(page.locator("#workers tr")).to_have_count(1)


async def test_only_operators_change_the_queue(
    streaming_deployment: Deployment, start_gateway: StartGateway, tmp_path: Path, browsing: Browsing
) -> None:
    file = tmp_path / "keys.json"
    viewer = keys("new", "viewer", "--scopes", "metrics", "--file", str(file))
    caller = keys("new", "caller", "--file", str(file))
    gateway = start_gateway(streaming_deployment, "--keys", str(file))
    changes = ("/v1/dead/redrive", "/v1/dead/purge", "/v1/queue/lanes/bulk/pause", "/v1/queue/lanes/bulk/resume")
    async with asyncio.timeout(SECONDS), browsing("401") as page:
        for key, status in ((viewer, 200), (caller, 403)):
            async with http_client(gateway, key) as http:
                for path in changes:
                    assert (await http.post(path, json={"all": True})).status_code == 403
                for path in ("/v1/dead", "/v1/jobs/1/record"):
                    assert (await http.get(path)).status_code == 403
                assert (await http.get("/v1/queue")).status_code == status
        await page.goto(f"{gateway.address}/dashboard")
        await page.locator("#key").fill(viewer)
        await page.get_by_role("button", name="Use this key").click()
        await expect(page.locator("#live")).to_have_text("Live")
        await expect(page.locator("#readonly")).to_be_visible()
        await expect(page.get_by_role("button", name="Pause bulk")).to_have_count(0)


async def test_many_viewers_cost_one_look_a_second(
    streaming_deployment: Deployment, streaming_gateway: GatewayProcess
) -> None:
    async with (
        asyncio.timeout(SECONDS),
        Redis.from_url(streaming_deployment.redis_url, protocol=2) as redis,
        http_client(streaming_gateway) as http,
        asyncio.TaskGroup() as viewers,
    ):
        seen: list[int] = []
        before = await looks(redis)

        async def view() -> None:
            async with http.stream("GET", "/v1/queue/events") as response:
                seen.extend([json.loads(data)["at"] async for data in first_data(response, 3)])

        for _ in range(100):
            viewers.create_task(view())
    async with Redis.from_url(streaming_deployment.redis_url, protocol=2) as redis:
        assert len(seen) == 300
        assert await looks(redis) - before <= len(set(seen)) + 2, "one look for all viewers together"


async def first_data(response: Any, count: int) -> AsyncIterator[str]:
    """Yield the data of the first events."""
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            yield line.removeprefix("data: ")
            count -= 1
            if count == 0:
                return


async def looks(redis: Any) -> int:
    """Return how often the queue was counted: only a count asks for the length of a hash."""
    calls = await redis.info("commandstats")
    return int(calls.get("cmdstat_hlen", {}).get("calls", 0))


async def test_ten_thousand_letters_are_grouped_by_one_call(
    streaming_deployment: Deployment, streaming_gateway: GatewayProcess
) -> None:
    async with (
        asyncio.timeout(SECONDS),
        Redis.from_url(streaming_deployment.redis_url, protocol=2) as redis,
        http_client(streaming_gateway) as http,
    ):
        await redis.delete(names.dead())
        await bury(redis, 10_000, "s3://photos/{0}.jpg timed out")
        grouped = (await http.get("/v1/dead/causes")).json()
        assert [cause["count"] for cause in grouped["causes"]] == [10_000]
        page = (await http.get("/v1/dead", params={"code": "attempts_exhausted"})).json()
        assert len(page["letters"]) == 50 and page["before"] == page["letters"][-1]["letter"]
        counted = await http.post("/v1/dead/purge", json={"code": "attempts_exhausted", "dry_run": True})
        assert counted.json()["matched"] == 10_000
        purged = await http.post("/v1/dead/purge", json={"all": True})
        assert purged.json() == {"matched": 10_000, "redriven": 0, "purged": 10_000, "gone": 0, "lives": 0}
        assert (await http.post("/v1/dead/purge", json={})).status_code == 400, "nothing chosen is not everything"
