"""Recordings in the playground in a real browser, before a worker that hears tones."""

import ast
import asyncio
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.audio.sounds import encoded, tone
from tests.examples.conftest import Deployment
from tests.gateway.conftest import SECONDS, GatewayProcess, http_client
from tests.gateway.pages.conftest import Browsing
from tests.gateway.pages.test_snippets import copied, run

expect = pytest.importorskip("playwright.async_api").expect
expect.set_options(timeout=20_000)

SHORT = encoded(tone(2.0), "flac", "flac")
LONG = encoded(np.concatenate((tone(30.0), tone(12.0, 3000.0))), "wav", "pcm_s16le")
FIRST = "Band 11."
BOTH = "Band 11. Band 54."


async def choose(page: Any, content: bytes, name: str, kind: str) -> None:
    await page.set_input_files("#sound-file", {"name": name, "mimeType": kind, "buffer": content})


async def test_segments_come_one_by_one_and_survive_a_reload(
    speech_gateway: tuple[Deployment, GatewayProcess], gate: Path, browsing: Browsing
) -> None:
    async with asyncio.timeout(SECONDS), browsing() as page:
        answer, segments = page.locator("#answer"), page.locator("#segments li")
        await page.goto(speech_gateway[1].address)
        await expect(page.get_by_role("radio")).to_have_count(2)  # transcribe and translate, as no other worker lives
        await choose(page, LONG, "<b>tones.wav", "audio/wav")
        await expect(page.locator("#sound-name")).to_have_text("<b>tones.wav")
        await page.get_by_label("Names and words to expect").fill(f"until {gate}")
        await page.get_by_role("button", name="Ask").click()
        await expect(answer).to_have_text(FIRST)  # while the second window is not heard yet
        await expect(segments).to_have_count(1)
        await page.get_by_role("button", name="Play from 00:00 to 00:30").click()
        await expect(page.locator("#player")).to_have_js_property("paused", False)
        await page.reload()
        await expect(answer).to_have_text(FIRST)
        gate.touch()
        await expect(answer).to_have_text(BOTH)
        await expect(segments).to_have_text(["00:00Band 11.", "00:30Band 54."])
        await expect(page.locator("#history")).to_contain_text(BOTH)
        await page.evaluate("localStorage.clear()")
        await page.reload()  # now the job is known only by the link to it
        await expect(segments).to_have_count(2)
        await expect(page.locator("#sound-name")).to_contain_text("s3://")
        await page.get_by_text("translate", exact=True).click()
        await page.get_by_role("button", name="Ask").click()
        await expect(answer).to_have_text("The loudest band is 11. The loudest band is 54.")


async def test_a_recording_is_dropped_and_the_copied_snippet_runs(
    speech_gateway: tuple[Deployment, GatewayProcess], browsing: Browsing, tmp_path: Path
) -> None:
    permissions = ["clipboard-read", "clipboard-write"]
    (tmp_path / "a tone.flac").write_bytes(SHORT)
    async with asyncio.timeout(SECONDS), browsing(permissions=permissions) as page:
        await page.goto(speech_gateway[1].address)
        await expect(page.get_by_role("radio")).to_have_count(2)
        await page.get_by_role("button", name="Ask").click()
        await expect(page.locator("#error")).to_have_text("Give a recording first.")
        await page.evaluate(_DROP, [list(SHORT), "a tone.flac", "audio/flac"])
        await page.get_by_label("Spoken language").fill("en")
        await page.get_by_role("button", name="Ask").click()
        await expect(page.locator("#metrics")).to_contain_text("tokens out")
        await expect(page.locator("#answer")).to_have_text(FIRST)
        by_stoop = await run(speech_gateway[0], sys.executable, "-c", await copied(page, "Python"))
        assert ast.literal_eval(by_stoop)["transcript"]["text"] == FIRST
        by_openai = await run(speech_gateway[0], sys.executable, "-c", await copied(page, "OpenAI"), folder=tmp_path)
        assert by_openai == FIRST + "\n"
        curl = await copied(page, "curl")
        if shutil.which("curl"):
            assert FIRST in await run(speech_gateway[0], "bash", "-c", curl, folder=tmp_path)
        # a file that is no recording is refused, and the recording stays
        await page.evaluate(_DROP, [[1], "notes.txt", "text/plain"])
        await expect(page.locator("#sound-error")).to_contain_text("notes.txt")
        await expect(page.locator("#sound-name")).to_have_text("a tone.flac")


_DROP = """([bytes, name, type]) => {
  const dropped = new DataTransfer();
  dropped.items.add(new File([new Uint8Array(bytes)], name, { type }));
  document.dispatchEvent(new DragEvent("drop", { dataTransfer: dropped, bubbles: true, cancelable: true }));
}"""


async def test_pages_of_other_workers_offer_no_transcripts(
    streaming_gateway: GatewayProcess, browsing: Browsing
) -> None:
    async with asyncio.timeout(SECONDS), browsing() as page:
        await page.goto(streaming_gateway.address)
        await expect(page.get_by_role("radio", name="chat")).to_be_visible()
        assert await page.get_by_text("transcribe", exact=True).count() == 0


async def test_a_recording_is_uploaded_or_named_and_nothing_else(
    speech_gateway: tuple[Deployment, GatewayProcess],
) -> None:
    async with asyncio.timeout(SECONDS), http_client(speech_gateway[1]) as http:
        refused = await http.post("/v1/recordings", content=SHORT, headers={"content-type": "text/plain"})
        assert refused.status_code == 415
        for path in ("/etc/passwd", "../secret.wav", "file:///etc/passwd", "http://example.com/a.wav"):
            refused = await http.post("/v1/jobs", json={"skill": "transcribe", "audio": path})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "audio"), path
