"""A chat in the playground in a real browser."""

import asyncio
from pathlib import Path

import pytest

from tests.examples.streaming_child import words
from tests.gateway.conftest import SECONDS, GatewayProcess
from tests.gateway.pages.conftest import Browsing

expect = pytest.importorskip("playwright.async_api").expect
expect.set_options(timeout=20_000)


async def test_a_chat_goes_on_through_pictures_a_stop_and_a_reload(
    streaming_gateway: GatewayProcess, gate: Path, browsing: Browsing
) -> None:
    async with asyncio.timeout(SECONDS), browsing() as page:
        answer, thread = page.locator("#answer"), page.locator("#thread li")

        async def send(text: str) -> None:
            await page.get_by_label("Message").fill(text)
            await page.get_by_label("Message").press("Enter")

        await page.goto(streaming_gateway.address)
        await page.get_by_text("chat", exact=True).click()
        await page.get_by_role("button", name="Webcam").click()
        await expect(page.locator("#webcam-video")).not_to_have_js_property("videoWidth", 0)
        await page.get_by_role("button", name="Take the picture").click()
        await expect(page.locator("#name")).to_have_text("webcam.jpg")
        await send("what is this?")
        await expect(answer).to_have_text("1 messages, 1 images")
        await expect(page.get_by_label("Send the picture with it")).not_to_be_checked()
        await send(f"tell 4 until {gate}")
        await expect(answer).to_have_text("".join(words(2)))
        await expect(thread).to_have_count(3)
        await page.reload()
        await expect(answer).to_have_text("".join(words(2)))
        await page.get_by_role("button", name="Stop", exact=True).click()
        await expect(page.locator("#state")).to_have_text("Stopped")
        await send("<b>and</b> now?")
        await expect(answer).to_have_text("5 messages, 1 images")
        await expect(thread.nth(3)).to_contain_text("".join(words(2)))
        await expect(thread.last).to_contain_text("<b>and</b> now?")
        await expect(thread.first.locator("img")).to_have_js_property("complete", True)
        assert await thread.first.locator("img").evaluate("image => image.naturalWidth") > 0
        await expect(page.locator("#history li")).to_have_count(1)
        await page.reload()
        await expect(answer).to_have_text("5 messages, 1 images")
        await page.get_by_role("button", name="New chat").click()
        await send("hello")
        await expect(answer).to_have_text("1 messages, 0 images")
