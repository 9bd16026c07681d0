"""The demo's jobs through the images: `make images`, then `make images-flow` (ENGINE=docker, podman or buildah).

Worker, gateway and producer run in containers, on a Redis and an S3 server of this machine.
"""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from stoop.demo.burst import plan_burst
from stoop.demo.embedded import embedded_redis, embedded_s3
from stoop.demo.pictures import draw_pictures
from stoop.demo.worker_process import find_model
from tests.deploy.containers import Engine
from tests.support.servers import free_port

ENGINE = os.environ.get("STOOP_IMAGES")
SECONDS = 180.0
MODEL = "/models/demo"

pytestmark = pytest.mark.skipif(not ENGINE, reason="run by make images-flow")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.delenv("STOOP_REDIS_URL", raising=False)
    with embedded_redis(tmp_path / "redis") as redis, embedded_s3(tmp_path / "s3") as s3:
        variables = {
            **s3.environment,
            "STOOP_REDIS_URL": redis.url,
            "STOOP_S3_ENDPOINT": s3.endpoint,
            "STOOP_S3_PATH_STYLE": "true",
            "STOOP_BUCKET": s3.bucket,
        }
        for number, picture in enumerate(draw_pictures(2, seed=1)):
            s3.client().put_object(Bucket=s3.bucket, Key=f"{number}.png", Body=picture.encoded)
        engine = Engine(str(ENGINE), variables, {Path(find_model(None)): MODEL})
        yield engine
        engine.remove()


async def test_the_demos_jobs_run_through_the_images(engine: Engine, tmp_path: Path) -> None:
    metrics, port = free_port(), free_port()
    bucket = engine.variables["STOOP_BUCKET"]
    options = ("--model", MODEL, "--device", "cpu", "--metrics-port", str(metrics), "--drain-seconds", "1")
    log = tmp_path / "worker.log"
    worker = engine.server("stoop-worker:cpu", "worker", *options, log=log, probe=f"http://127.0.0.1:{metrics}/readyz")
    gateway = engine.server(
        *("stoop-producer", "serve", "--open", "--port", str(port)),
        log=tmp_path / "gateway.log",
        probe=f"http://127.0.0.1:{port}/readyz",
    )
    pictures = draw_pictures(2, seed=1)
    try:
        worker.start()
        gateway.start()
        async with asyncio.timeout(SECONDS), httpx.AsyncClient(trust_env=False, timeout=SECONDS) as http:
            asked = []
            for job in plan_burst(pictures):
                body = {"skill": job.skill, **job.fields}
                if job.picture is not None:
                    body["image"] = f"s3://{bucket}/{pictures.index(job.picture)}.png"
                submitted = await http.post(f"http://127.0.0.1:{port}/v1/jobs", json=body)
                assert submitted.status_code == 202, submitted.text
                asked.append(submitted.json()["id"])
            for job_id in asked:
                path = f"http://127.0.0.1:{port}/v1/jobs/{job_id}"
                while (found := (await http.get(path)).json())["status"] in ("queued", "running", "delayed"):
                    await asyncio.sleep(0.1)
                assert found["status"] == "completed", found
        command = ("detect", f"s3://{bucket}/0.png", pictures[0].shapes[0].name, "--json")
        output = await asyncio.to_thread(engine.run, "stoop-producer", *command)
        assert json.loads(output)["output"]["objects"]
    except BaseException:
        print(log.read_text()[-3000:])
        raise
    finally:
        gateway.end(signal.SIGTERM)
        worker.end(signal.SIGTERM)
