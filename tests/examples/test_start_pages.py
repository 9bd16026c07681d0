"""The code of the documentation's first pages, copied from them and run as it stands."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stoop.demo.pictures import Picture, draw_pictures
from tests.examples.conftest import ROOT, Deployment, Start
from tests.examples.streaming_child import words
from tests.examples.test_starlette_sse import SECONDS, calling, events
from tests.support.browser import open_browser

pytest.importorskip("fastapi")
pytest.importorskip("pycocotools")

START = ROOT / "docs" / "start"


def blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a page in one language."""
    text = (START / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}[^\n]*\n(.*?)```", text, re.DOTALL)


async def test_the_back_end_streams_and_continues_a_broken_stream(
    streaming_deployment: Deployment, start: Start, gate: Path, tmp_path: Path
) -> None:
    [app], [page] = blocks("web.md", "python"), blocks("web.md", "html")
    assert len([line for line in app.splitlines() if line.strip()]) <= 40
    folder = tmp_path / "application"
    folder.mkdir()
    (folder / "app.py").write_text(app)
    (folder / "page.html").write_text(page)
    # uvicorn runs in the application's folder, as the page says
    command = f"import os, runpy, sys; os.chdir({str(folder)!r}); sys.argv = ['uvicorn', 'app:app', '--port', '0']; "
    started = start(
        "application",
        "-c",
        command + "sys.path.insert(0, ''); runpy.run_module('uvicorn', run_name='__main__')",
        ready=r"running on (http://\S+)",
        environment=streaming_deployment.variables,
    )
    async with asyncio.timeout(SECONDS), calling(started) as http:
        assert "<form" in (await http.get("/")).text
        [picture] = draw_pictures(1, seed=1)
        asked = await http.post("/jobs", params={"question": f"tell 40 until {gate}"}, content=picture.encoded)
        job_id = asked.json()["id"]
        texts: list[str] = []
        last = ""
        first = events(http, job_id)
        async for seen, event in first:
            last = seen
            texts += [event["text"]] if event["type"] == "delta" else []
            if "".join(texts) == "".join(words(40)[:20]):
                break
        await first.aclose()
        gate.touch()
        texts += [event["text"] async for _, event in events(http, job_id, last) if event["type"] == "delta"]
        assert "".join(texts) == "".join(words(40))
        broken = await http.post("/jobs", content=b"no image")
        assert broken.status_code == 400 and "image" in broken.json()["error"]
        assert (await http.get("/jobs/1234/events")).status_code == 404  # a browser does not try again
        await look(str(http.base_url), picture.encoded, tmp_path)


async def look(address: str, picture: bytes, folder: Path) -> None:
    """Ask about a picture in Chromium, then about a file that is no picture; then open a job that does not exist."""
    playwright = pytest.importorskip("playwright.async_api")
    (folder / "picture.png").write_bytes(picture)
    (folder / "broken.png").write_bytes(b"no image")
    async with open_browser() as page:
        answer = page.locator("#answer")
        await page.goto(address)
        for name, question, expected in (("picture", "tell 3", "".join(words(3))), ("broken", "tell 3", "image")):
            await page.set_input_files("[name=image]", folder / f"{name}.png")
            await page.fill("[name=question]", question)
            await page.click("button")
            await playwright.expect(answer).to_contain_text(expected, timeout=20_000)
        await page.goto(f"{address}/#1234")
        await page.reload()
        await playwright.expect(answer).to_have_text("There is no such job, or no server.", timeout=20_000)


def test_the_commands_for_a_folder_of_images_lead_to_coco(
    demo_deployment: tuple[Deployment, Picture, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment, _, _ = demo_deployment
    for name, value in deployment.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    draw, load = blocks("data.md", "python")
    commands = [block for block in blocks("data.md", "sh") if "found" in block]
    assert len(commands) == 3
    for command in (
        [sys.executable, "-c", draw],
        *(["bash", "-euc", command] for command in commands),
        [sys.executable, "-c", load],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    boxes, images = map(int, re.findall(r"\d+", done.stdout.splitlines()[-1]))
    truth = sum(shape.kind in ("circle", "square") for picture in draw_pictures(8, seed=1) for shape in picture.shapes)
    assert f"`{truth} boxes in 8 images`" in (START / "data.md").read_text(encoding="utf-8")
    assert images == 8 and abs(boxes - truth) <= 1
    rows = (tmp_path / "found" / "results-00000.jsonl").read_text().splitlines()
    assert len({json.loads(row)["row"] for row in rows}) == 16
    assert (tmp_path / "found-drawn" / "index.html").is_file()
