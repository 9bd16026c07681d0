"""The scripts of the README and of the guides, copied from them and run as they stand, against a real worker."""

import contextlib
import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from stoop.demo.pictures import Picture, draw_pictures
from tests.flow.conftest import Service

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TEXT = "".join((ROOT / "docs" / "guides" / name).read_text(encoding="utf-8") for name in ("python.md", "shell.md"))
SCRIPTS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)

Run = Callable[[str], str]

# As its users write it: the model is made once, and nothing is closed.
MOONDREAM_SCRIPT = """\
import moondream as md
from PIL import Image

model = md.vl(api_key="secret")

image = Image.open("photo.png")
encoded = model.encode_image(image)
short = model.caption(image, length="short")["caption"]
answer = model.query(image=encoded, question="How many shapes are there?", settings={"temperature": 0})
near = model.query(encoded, "What colour is this?", spatial_refs=[[0.5, 0.5]], settings={"max_tokens": 8})
pieces = [piece for piece in model.caption(encoded, stream=True)["caption"]]
boxes = model.detect(image, "circle", settings={"max_objects": 3})["objects"]
points = model.point(image, "circle")["points"]
thought = model.query(image, "How many shapes are there?", reasoning=True, settings={"max_tokens": 8})
text_only = model.query(question="What is two and two?", settings={"max_tokens": 4})["answer"]

import json
print(json.dumps([short, answer["answer"], near["answer"], pieces, boxes, points, thought, text_only]))
"""
PORTED = {
    "import moondream as md": "from stoop import Client",
    'model = md.vl(api_key="secret")': "model = Client()",
}


@pytest.fixture(scope="module")
def pictures(service: Service) -> list[Picture]:
    """The pictures in the README's bucket, beside one file that is not an image."""
    store = service.s3.client()
    # a busy machine may answer after boto3 has asked again
    with contextlib.suppress(store.exceptions.BucketAlreadyExists):
        store.create_bucket(Bucket="photos")
    pictures = draw_pictures(6, seed=3)
    for picture in pictures:
        store.put_object(Bucket="photos", Key=f"2026/{picture.name}.png", Body=picture.encoded)
    store.put_object(Bucket="photos", Key="2026/broken.png", Body=b"no image")
    store.put_object(Bucket="photos", Key="cat.jpg", Body=pictures[0].encoded)
    return pictures


@pytest.fixture
def environment(service: Service, tmp_path: Path) -> dict[str, str]:
    """The variables of the README; the folder has its images."""
    (tmp_path / "photo.png").write_bytes(service.picture.encoded)
    (tmp_path / "photo.jpg").write_bytes(service.picture.encoded)
    (tmp_path / "shapes.png").write_bytes(service.picture.encoded)
    variables = {
        "STOOP_REDIS_URL": service.redis_url,
        "STOOP_BUCKET": service.s3.bucket,
        "STOOP_S3_ENDPOINT": service.s3.endpoint,
        "STOOP_S3_PATH_STYLE": "true",
        "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    return {**os.environ, **service.s3.environment, **variables}


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path) -> Run:
    """Runs a script as a user would; nothing may come on stderr."""

    def run(script: str) -> str:
        command = [sys.executable, "-W", "default", "-c", script]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run


def test_the_readme_is_short_and_shows_the_first_steps_own_code() -> None:
    assert len(README.splitlines()) < 250
    web = (ROOT / "docs" / "start" / "web.md").read_text(encoding="utf-8")
    for block in re.findall(r"```(?:python|html) title[^\n]*\n(.*?)```", web, re.DOTALL):
        assert block in README


def test_the_readmes_script_asks_about_a_picture(run: Run, service: Service) -> None:
    [asked] = [
        each for each in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "from stoop import Client" in each
    ]
    asked = asked.replace("s3://stoop/up/shapes.png", service.image)
    count, boxes = run(asked).splitlines()
    assert count == str(len(service.picture.shapes))
    assert "x_min" in boxes or service.picture.count("circle") == 0


def script(word: str) -> str:
    [found] = [each for each in SCRIPTS if word in each]
    return found


@pytest.mark.parametrize("word", ["asyncio.run", "paginate"])
def test_a_script_has_ten_lines(word: str) -> None:
    assert len([line for line in script(word).splitlines() if line.strip()]) <= 10


def test_the_back_ends_script_streams_an_answer(run: Run, service: Service) -> None:
    assert run(script("asyncio.run")).strip() == str(len(service.picture.shapes))


def test_the_data_persons_script_asks_about_a_bucket(run: Run, pictures: list[Picture], tmp_path: Path) -> None:
    run(script("paginate"))
    rows = {row["image"]: row for row in map(json.loads, (tmp_path / "found.jsonl").read_text().splitlines())}
    assert set(rows) == {f"s3://photos/2026/{name}.png" for name in ("broken", *(each.name for each in pictures))}
    assert rows.pop("s3://photos/2026/broken.png")["error"].startswith("image_undecodable")
    right = [len(rows[f"s3://photos/2026/{each.name}.png"]["objects"]) == each.count("red circle") for each in pictures]
    assert sum(right) >= 5


def test_the_ported_script_of_the_readme_runs(run: Run, service: Service) -> None:
    text = script("md.vl")
    constructor = 'Client(redis_url="redis://localhost:6379/0", bucket="images")'
    assert constructor in text
    output = run(text.replace(constructor, f'Client(redis_url="{service.redis_url}", bucket="{service.s3.bucket}")'))
    caption, rest = output.split("\n", 1)
    assert any(shape.colour in caption for shape in service.picture.shapes)
    assert rest.startswith(str(len(service.picture.shapes)))


def test_a_script_for_moondreams_client_runs_with_two_lines_changed(run: Run, service: Service) -> None:
    before = MOONDREAM_SCRIPT.splitlines()
    after = [PORTED.get(line, line) for line in before]
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 2
    short, answer, near, pieces, boxes, points, thought, text_only = json.loads(run("\n".join(after)))
    assert any(shape.colour in short for shape in service.picture.shapes)
    assert answer == str(len(service.picture.shapes))
    assert isinstance(near, str) and isinstance(text_only, str)
    assert len(pieces) > 1 and all(isinstance(piece, str) for piece in pieces)
    assert all(set(box) == {"x_min", "y_min", "x_max", "y_max"} for box in boxes)
    assert all(set(point) == {"x", "y"} for point in points)
    assert set(thought["reasoning"]) == {"text", "grounding"}


def shell(word: str) -> str:
    [found] = [each for each in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL) if word in each]
    return found


def test_the_commands_of_the_readme_ask_about_one_image(
    environment: dict[str, str], pictures: list[Picture], tmp_path: Path
) -> None:
    command = ["bash", "-euc", shell("stoop query")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert '"points"' in done.stdout
    assert (tmp_path / "people.png").is_file()


def test_the_commands_of_the_readme_work_on_a_bucket(
    environment: dict[str, str], pictures: list[Picture], tmp_path: Path
) -> None:
    command = ["bash", "-uc", shell("stoop bulk s3:")]  # without -e: the broken image also sets the exit code
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "image_undecodable" in done.stdout + done.stderr
    [written] = (tmp_path / "found-coco").rglob("*.json")
    coco = json.loads(written.read_text())
    assert len(coco["images"]) == len(pictures)
    assert abs(len(coco["annotations"]) - sum(each.count("red circle") for each in pictures)) <= 1
    assert list((tmp_path / "found-drawn").glob("*.html"))
