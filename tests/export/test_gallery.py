import base64
import io
import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from PIL import Image

from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedS3
from stoop.draw import COLOURS
from stoop.draw.gallery import draw_gallery, draw_one
from stoop.errors import ConfigError
from stoop.export import Report
from stoop.export.naming import digest
from stoop_schemas.skill import Box
from tests.export.truth import BUCKET, Truth, failed, line

HOSTILE = "</figcaption><script>alert(1)</script><img src=x onerror=alert(1)>\"' & \x00\x1b[31m"


class Page(HTMLParser):
    """A page as a browser sees it: its elements with their attributes, and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def tiles(self) -> list[str]:
        return [attributes["class"] for attributes in self.all("figure")]

    def thumbnails(self) -> Iterator[Image.Image]:
        for attributes in self.all("img"):
            media, _, packed = attributes["src"].partition(";base64,")
            assert media == "data:image/jpeg"
            yield Image.open(io.BytesIO(base64.b64decode(packed)))


def assert_harmless(page: Page) -> None:
    """Assert that nothing runs, nothing is loaded from elsewhere, and no text became an attribute."""
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "iframe", "object", "embed", "link", "base", "form", "svg"}
    attributes = {name for _, each in page.elements for name in each}
    assert not any(name.startswith("on") for name in attributes)
    assert all(each["src"].startswith("data:image/jpeg;base64,") for each in page.all("img"))
    assert all(each["href"].startswith("./") for each in page.all("a"))
    [policy] = [each["content"] for each in page.all("meta") if each.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; img-src data:")


def drawn(truth: Truth, out: Path, *, images: str | None = None, page_images: int = 200) -> Report:
    where = str(truth.images) if images is None else images
    return draw_gallery(str(truth.results), out, images=where, config=ProducerConfig(), page_images=page_images)


def test_odd_and_colliding_names_are_all_drawn(tmp_path: Path) -> None:
    late = "s3://b2/a.png"
    addresses = ["s3://b1/..png", "s3://b1/...png", "s3://b1/a.png", f"s3://b1/a-{digest(late)}.png", late]
    box = msgspec.to_builtins(Box(0.1, 0.1, 0.5, 0.5))
    lines = [line(address, "detect", object="cat", objects=[box]) for address in addresses]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    for address in addresses:
        path = tmp_path / "images" / address.removeprefix("s3://")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 20)).save(path, "PNG")
    report = draw_gallery(
        str(tmp_path / "results.jsonl"), tmp_path / "g", images=str(tmp_path / "images"), config=ProducerConfig()
    )
    assert (report.written["images"], report.errors) == (5, 0)
    assert len(list((tmp_path / "g" / "drawn").iterdir())) == 5


def test_every_image_is_drawn_and_on_the_sheet(truth: Truth, tmp_path: Path) -> None:
    report = drawn(truth, tmp_path / "g")
    page = Page(tmp_path / "g" / "index.html")
    assert_harmless(page)
    assert page.tiles == ["ok with"] * len(truth.pictures)
    assert report.written["images"] == len(truth.pictures)
    for link, picture in zip(page.all("a"), truth.pictures, strict=True):
        with Image.open(tmp_path / "g" / link["href"]) as whole:
            assert whole.width == picture.size[0]
            assert whole.height > picture.size[1], "with the texts below"
        assert f"{picture.name} of shapes" in page.text
        for shape in picture.shapes:
            assert shape.name in page.text


def test_boxes_are_drawn_where_they_are(truth: Truth, tmp_path: Path) -> None:
    drawn(truth, tmp_path / "g")
    wanted = {tuple(bytes.fromhex(colour[1:])) for colour in COLOURS}
    for picture in truth.pictures:
        with Image.open(tmp_path / "g" / "drawn" / "set" / f"{picture.name}.png") as whole:
            for shape in picture.shapes:
                right, middle = shape.box[2], (shape.box[1] + shape.box[3]) / 2
                near = {whole.getpixel((int(right) - reach, int(middle))) for reach in range(3)}
                assert near & wanted


def test_drawings_of_local_images_are_named_by_their_path_in_the_folder(tmp_path: Path) -> None:
    inside, elsewhere = tmp_path / "images" / "a" / "1.png", tmp_path / "other" / "2.png"
    box = msgspec.to_builtins(Box(0.1, 0.1, 0.5, 0.5))
    for path in (inside, elsewhere):
        path.parent.mkdir(parents=True)
    Image.new("RGB", (20, 20)).save(inside, "PNG")
    lines = [line(str(path), "detect", object="cat", objects=[box]) for path in (inside, elsewhere)]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    draw_gallery(
        str(tmp_path / "results.jsonl"), tmp_path / "g", images=str(tmp_path / "images"), config=ProducerConfig()
    )
    assert [path.relative_to(tmp_path / "g").as_posix() for path in (tmp_path / "g").rglob("*.png")] == [
        "drawn/a/1.png"
    ]


def test_failed_rows_have_a_tile_with_the_reason(truth: Truth, tmp_path: Path) -> None:
    rows = [
        failed(f"{BUCKET}/gone.png", message="nothing is at that address"),
        failed(f"{BUCKET}/shapes-1.png", "context_overflow", "shorten it"),
        line(f"{BUCKET}/lost.png", "caption", caption="written before it was lost"),
        line(None, "query", question="what is 1 + 1?", answer="2"),
    ]
    truth.write([*truth.lines(), *rows])
    report = drawn(truth, tmp_path / "g")
    page = Page(tmp_path / "g" / "index.html")
    tiles = page.tiles
    titles = [each["title"] for each in page.all("h2")]
    assert titles == sorted(titles)
    assert dict(zip(titles, tiles, strict=True)) == {
        titles[0]: "ok without",  # a question about no image
        "set/gone.png": "failed",
        "set/lost.png": "failed ok without",
        "set/shapes-1.png": "failed ok with",
        **{f"set/shapes-{number}.png": "ok with" for number in range(2, 6)},
    }
    for text in (
        "image_not_found",
        "nothing is at that address",
        "context_overflow",
        "there is no file",
        "what is 1 + 1?",
    ):
        assert text in page.text
    assert "written before it was lost" in page.text
    assert "2 failed" in page.text
    assert report.errors == 1, "an image that a completed row is about is not there"


def test_filters_are_radio_buttons_without_a_script(truth: Truth, tmp_path: Path) -> None:
    drawn(truth, tmp_path / "g.html")
    page = Page(tmp_path / "g.html")
    assert [each["id"] for each in page.all("input")] == ["all", "ok", "failed", "with", "without"]
    assert [each["for"] for each in page.all("label")] == ["all", "ok", "failed", "with", "without"]
    style = (tmp_path / "g.html").read_text()
    assert "#failed:checked ~ main figure:not(.failed)" in style
    assert "#without:checked ~ main figure:not(.without)" in style


def test_no_text_nor_name_can_do_anything(truth: Truth, tmp_path: Path) -> None:
    name = "javascript:alert(1)'\"><script>.png"
    (truth.images / name).write_bytes(truth.pictures[0].encoded)
    image = f"s3://photos/{name}"
    truth.write(
        [
            line(image, "caption", caption=HOSTILE),
            line(image, "query", question=HOSTILE, answer=HOSTILE),
            line(image, "detect", object=HOSTILE, objects=[{"x_min": 0.1, "y_min": 0.1, "x_max": 0.5, "y_max": 0.5}]),
            failed(image, message=HOSTILE),
            line(f"../../{HOSTILE}", "caption", caption="x"),
            line(f"../../../../..{tmp_path}/stolen.png", "caption", caption="x"),
        ]
    )
    (tmp_path / "stolen.png").write_bytes(truth.pictures[1].encoded)
    drawn(truth, tmp_path / "g")
    page = Page(tmp_path / "g" / "index.html")
    assert_harmless(page)
    assert "<script>alert(1)</script>" in page.text, "it is shown as the text that it is"
    assert len(page.all("img")) == 1, "the image outside the folder is not shown"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "g", "g.errors.jsonl", "images", "results.jsonl", "stolen.png",
    ]  # fmt: skip


def test_pages_lead_to_each_other(truth: Truth, tmp_path: Path) -> None:
    drawn(truth, tmp_path / "s.html", page_images=2)
    pages = [Page(tmp_path / name) for name in ("s.html", "s-2.html", "s-3.html")]
    assert [len(page.tiles) for page in pages] == [2, 2, 1]
    assert [[each["href"] for each in page.all("a")] for page in pages] == [
        ["./s-2.html"],
        ["./s.html", "./s-3.html"],
        ["./s-2.html"],
    ]


def test_thumbnails_are_small(truth: Truth, tmp_path: Path) -> None:
    written = io.BytesIO()
    Image.effect_noise((3000, 2000), 80).save(written, "PNG")
    (truth.images / "large.png").write_bytes(written.getvalue())
    truth.write([line(f"{BUCKET}/large.png", "caption", caption="large")])
    drawn(truth, tmp_path / "s.html")
    [thumbnail] = Page(tmp_path / "s.html").thumbnails()
    assert thumbnail.size == (480, 320)


def test_stored_images_are_drawn(truth: Truth, tmp_path: Path, s3: EmbeddedS3, stored: str) -> None:
    drawn(truth, tmp_path / "g", images="s3")
    assert len(Page(tmp_path / "g" / "index.html").all("img")) == len(truth.pictures)


@pytest.mark.parametrize("out", ["g", "g.html"])
def test_nothing_is_overwritten(truth: Truth, tmp_path: Path, out: str) -> None:
    drawn(truth, tmp_path / out)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with pytest.raises(ConfigError, match="already"):
        drawn(truth, tmp_path / out)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_one_image_takes_all_results(truth: Truth, tmp_path: Path) -> None:
    result = {"id": "1-0", "status": "completed", "skill": "detect", "output": {"objects": [_box(0.25, 0.75)]}}
    (tmp_path / "r.json").write_text(json.dumps(result))
    picture = Image.new("RGB", (400, 400), "white")
    written = io.BytesIO()
    picture.save(written, "PNG")
    whole = draw_one(str(tmp_path / "r.json"), written.getvalue())
    assert whole.getpixel((100, 200)) == tuple(bytes.fromhex(COLOURS[0][1:]))
    (tmp_path / "r.json").write_text(json.dumps(failed("a.png")))
    with pytest.raises(ConfigError, match="no completed result"):
        draw_one(str(tmp_path / "r.json"), written.getvalue())


def _box(low: float, high: float) -> dict[str, float]:
    return {"x_min": low, "y_min": low, "x_max": high, "y_max": high}
