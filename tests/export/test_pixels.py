import io
from pathlib import Path

import pytest
from PIL import Image

from stoop.errors import ImageUnreadable
from stoop.export.pixels import shape_in_file, shape_of, shape_of_head
from stoop_worker.images import ImageLimits, load

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")


def encoded(image_format: str, size: tuple[int, int] = (61, 40), **options: object) -> bytes:
    written = io.BytesIO()
    Image.effect_noise(size, 50).convert("RGB").save(written, image_format, **options)
    return written.getvalue()


def turned(image_format: str, orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(image_format, exif=exif)


@pytest.mark.parametrize("image_format", FORMATS)
def test_sizes_are_those_the_worker_sees(image_format: str) -> None:
    image = encoded(image_format)
    height, width, _ = load(image, ImageLimits()).pixels.shape
    assert shape_of(image).stored == (width, height) == (61, 40)


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_a_rotation_is_followed_only_where_the_worker_does(image_format: str, orientation: int) -> None:
    image = turned(image_format, orientation)
    height, width, _ = load(image, ImageLimits()).pixels.shape
    assert shape_of(image).stored == (width, height)


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize(("orientation", "shown"), [(1, (61, 40)), (3, (61, 40)), (6, (40, 61)), (8, (40, 61))])
def test_readers_see_it_turned(image_format: str, orientation: int, shown: tuple[int, int]) -> None:
    shape = shape_of(turned(image_format, orientation))
    assert (shape.stored, shape.orientation, shape.shown) == ((61, 40), orientation, shown)


@pytest.mark.parametrize("image_format", FORMATS)
def test_a_large_image_is_measured_by_its_head(image_format: str) -> None:
    image = encoded(image_format, (1500, 1000))
    asked: list[int | None] = []

    def read(count: int | None) -> bytes:
        asked.append(count)
        return image[:count]

    assert shape_of_head(read).stored == (1500, 1000)
    if image_format in ("PNG", "JPEG", "GIF", "BMP"):
        assert asked == [65536]


def test_a_jpeg_with_a_large_header_is_read_further() -> None:
    image = encoded("JPEG")
    # comments of 60 kB each in front of the frame's own segment
    comment = b"\xff\xfe\xea\x60" + b"x" * (0xEA60 - 2)
    image = image[:2] + 3 * comment + image[2:]
    asked: list[int | None] = []

    def read(count: int | None) -> bytes:
        asked.append(count)
        return image[:count]

    assert shape_of_head(read).stored == (61, 40)
    assert asked == [65536, 1 << 20]


@pytest.mark.parametrize("junk", [b"", b"nothing", b"\x89PNG\r\n\x1a\n", b"<svg xmlns='x'/>", b"GIF89a"])
def test_a_file_that_is_not_an_image_has_no_size(junk: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(junk)
    with pytest.raises(ImageUnreadable):
        shape_of(junk)
    with pytest.raises(ImageUnreadable):
        shape_in_file(path)
    with pytest.raises(ImageUnreadable):
        shape_of_head(lambda count: junk)


def test_a_file_is_not_read_beyond_its_header(tmp_path: Path) -> None:
    path = tmp_path / "cut.png"
    path.write_bytes(encoded("PNG", (1500, 1000))[:100])
    assert shape_in_file(path).stored == (1500, 1000)
