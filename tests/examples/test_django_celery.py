"""The Django project: its server, a stock Celery worker and one of ours."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoop.demo.pictures import Picture
from tests.examples.conftest import EXAMPLES, Deployment, Start

httpx = pytest.importorskip("httpx")
pytest.importorskip("celery")
pytest.importorskip("django")
pytest.importorskip("uvicorn")

FOLDER = EXAMPLES / "django_celery"
SECONDS = 60.0

SERVER = ("-m", "uvicorn", "--factory", "django.core.asgi:get_asgi_application", "--lifespan", "off", "--port", "0")
WORKER = ("-m", "celery", "--app", "shop", "worker", "--pool", "solo", "--without-gossip", "--without-mingle")


async def until(http: Any, photo_id: int, done: Callable[[dict[str, str]], bool]) -> dict[str, str]:
    async with asyncio.timeout(SECONDS):
        while not done(photo := (await http.get(f"/photos/{photo_id}")).json()):
            await asyncio.sleep(0.05)
    return dict(photo)


async def test_a_photo_gets_its_caption_and_a_missing_one_its_failure(
    demo_deployment: tuple[Deployment, Picture, str], start: Start, tmp_path: Path
) -> None:
    deployment, picture, image = demo_deployment
    environment = {
        **deployment.variables,
        "PYTHONPATH": os.pathsep.join([str(FOLDER), deployment.variables["PYTHONPATH"]]),
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "SHOP_DATABASE": str(tmp_path / "shop.sqlite3"),
    }
    migrate = [sys.executable, str(FOLDER / "manage.py"), "migrate", "--run-syncdb"]
    subprocess.run(migrate, env=environment, check=True, capture_output=True, timeout=60)
    address = start("server", *SERVER, ready=r"running on (http://\S+)", environment=environment)
    start("stock", *WORKER, "--loglevel", "info", ready=r"ready\.", environment=environment)
    async with httpx.AsyncClient(base_url=address, timeout=SECONDS, trust_env=False) as http:
        added = await http.post("/photos", json={"image": image})
        missing = await http.post("/photos", json={"image": f"s3://{deployment.s3.bucket}/examples/missing.png"})
        assert (added.status_code, missing.status_code) == (202, 202)
        photo = await until(http, added.json()["id"], lambda photo: photo["caption"] != "")
        assert any(shape.colour in photo["caption"] for shape in picture.shapes)
        assert photo["failure"] == ""
        lost = await until(http, missing.json()["id"], lambda photo: photo["failure"] != "")
        assert lost["caption"] == ""
        assert "image_not_found" in lost["failure"]


def test_the_readme_shows_the_chain_as_it_is() -> None:
    [shown] = re.findall(r"```python\n(.*?)```", (FOLDER / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    source = (FOLDER / "shop" / "views.py").read_text(encoding="utf-8")
    assert all(line in source for line in shown.splitlines())
