"""Loading: the pixels of each format, every limit, and hostile files."""

import io
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

from stoop_worker.errors import ImageError, ImageTooLarge, ImageUndecodable
from stoop_worker.images import Image, ImageLimits, load
from tests.images.pictures import encode, gradient, huge_png

LIMITS = ImageLimits()
PIXELS = gradient(20, 30)
LOSSLESS = [("PNG", {}), ("BMP", {}), ("TIFF", {}), ("WEBP", {"lossless": True})]
ENCODED = [encode(PIXELS, name, **options) for name, options in [*LOSSLESS, ("JPEG", {}), ("GIF", {})]]


@pytest.mark.parametrize(("name", "options"), LOSSLESS)
def test_lossless_formats_give_their_pixels(name: str, options: dict[str, object]) -> None:
    image = load(encode(PIXELS, name, **options), LIMITS)
    assert image.pixels.dtype == np.uint8
    assert (image.pixels == PIXELS).all()


def test_jpeg_is_pillows() -> None:
    encoded = encode(PIXELS, "JPEG", quality=80)
    assert (load(encoded, LIMITS).pixels == np.asarray(Pillow.open(io.BytesIO(encoded)))).all()


def test_exif_rotation_is_ignored() -> None:
    exif = Pillow.Exif()
    exif[0x0112] = 6  # a quarter turn
    encoded = encode(PIXELS, "JPEG", exif=exif, quality=80)
    assert (load(encoded, LIMITS).pixels == load(encode(PIXELS, "JPEG", quality=80), LIMITS).pixels).all()


def test_alpha_is_dropped_not_blended() -> None:
    alpha = np.full((20, 30, 1), 0, dtype=np.uint8)
    encoded = encode(np.concatenate((PIXELS, alpha), axis=-1), "PNG")
    assert (load(encoded, LIMITS).pixels == PIXELS).all()


@pytest.mark.parametrize("transparency", [None, 1, bytes([0, 128])])
def test_palettes_are_expanded(transparency: object) -> None:
    picture = Pillow.new("P", (2, 1))
    picture.putpalette([10, 20, 30, 40, 50, 60])
    picture.putpixel((1, 0), 1)
    options = {} if transparency is None else {"transparency": transparency}
    assert load(encode(picture, "PNG", **options), LIMITS).pixels.tolist() == [[[10, 20, 30], [40, 50, 60]]]


@pytest.mark.parametrize(("mode", "value", "expected"), [("1", 1, 255), ("L", 77, 77), ("LA", (77, 3), 77)])
def test_grey_is_repeated(mode: str, value: object, expected: int) -> None:
    encoded = encode(Pillow.new(mode, (3, 2), value), "PNG")  # type: ignore[arg-type]
    assert (load(encoded, LIMITS).pixels == np.full((2, 3, 3), expected)).all()


def test_16_bit_grey_keeps_its_upper_bits() -> None:
    samples = np.array([[0, 255, 256, 0x7FFF, 0x8000, 0xFFFF]], dtype=np.uint16)
    for name in ("PNG", "TIFF"):
        assert load(encode(samples, name), LIMITS).pixels[0, :, 0].tolist() == [0, 0, 1, 127, 128, 255]


def test_cmyk_becomes_rgb() -> None:
    encoded = encode(Pillow.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=95)
    red, green, blue = load(encoded, LIMITS).pixels[8, 8].tolist()
    assert red > 250
    assert max(green, blue) < 5


@pytest.mark.parametrize("name", ["GIF", "WEBP", "PNG", "TIFF"])
def test_the_first_frame_is_the_image(name: str) -> None:
    frames = [Pillow.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    options = {"lossless": True} if name == "WEBP" else {}
    encoded = encode(frames[0], name, save_all=True, append_images=frames[1:], **options)
    assert (load(encoded, LIMITS).pixels == (255, 0, 0)).all()


def test_different_images_have_different_digests() -> None:
    encoded = encode(PIXELS, "PNG")
    image = load(encoded, LIMITS)
    assert image.digest == load(bytes(encoded), LIMITS).digest
    changed = PIXELS.copy()
    changed[0, 0, 0] ^= 1
    assert load(encode(changed, "PNG"), LIMITS).digest != image.digest
    wrapped = Image.of(PIXELS)
    assert Image.of(changed).digest != wrapped.digest
    assert Image.of(PIXELS.reshape(30, 20, 3)).digest != wrapped.digest
    assert Image.of(np.asfortranarray(PIXELS)).digest == wrapped.digest
    assert len(image.digest) == len(wrapped.digest) == 16


def test_the_byte_limit_is_exact() -> None:
    encoded = encode(PIXELS, "PNG")
    load(encoded, ImageLimits(max_bytes=len(encoded)))
    with pytest.raises(ImageTooLarge, match=f"{len(encoded)} bytes"):
        load(encoded, ImageLimits(max_bytes=len(encoded) - 1))


def test_the_pixel_limit_is_exact() -> None:
    load(encode(PIXELS, "PNG"), ImageLimits(max_pixels=600))
    with pytest.raises(ImageTooLarge, match="30 x 20 pixels: at most 599"):
        load(encode(PIXELS, "PNG"), ImageLimits(max_pixels=599))


@pytest.mark.parametrize("side", [8001, 10_000, 12_000, 100_000, 2**31 - 1])
@pytest.mark.parametrize("filters", ["error", "ignore"])
def test_bombs_are_refused_before_they_are_decoded(side: int, filters: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter(filters)  # type: ignore[arg-type]
        with pytest.raises(ImageTooLarge, match="at most 64000000"):
            load(huge_png(side, side), LIMITS)


@pytest.mark.parametrize("encoded", ENCODED)
def test_truncated_files_are_undecodable(encoded: bytes) -> None:
    with pytest.raises(ImageUndecodable):
        load(encoded[: len(encoded) // 2], LIMITS)


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"hello",
        b'<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>',
        b"%PDF-1.7\n",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n",
        encode(Pillow.new("RGB", (16, 16)), "ICO"),
        encode(Pillow.new("RGB", (16, 16)), "PPM"),
        encode(Pillow.new("RGB", (16, 16)), "PCX"),
    ],
)
def test_other_formats_are_refused(encoded: bytes) -> None:
    with pytest.raises(ImageUndecodable, match="not an image of an accepted format"):
        load(encoded, LIMITS)


def test_formats_are_the_configurations() -> None:
    with pytest.raises(ImageUndecodable, match=r"accepted format \(JPEG\)"):
        load(encode(PIXELS, "PNG"), ImageLimits(formats=("JPEG",)))


def test_an_image_without_pixels_is_undecodable() -> None:
    with pytest.raises(ImageUndecodable):
        load(huge_png(0, 10), LIMITS)


@settings(max_examples=400)
@given(st.data())
def test_damage_raises_only_image_errors(data: st.DataObject) -> None:
    damaged = bytearray(data.draw(st.sampled_from(ENCODED)))
    for position in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=8)):
        damaged[position] = data.draw(st.integers(0, 255))
    cut_off = data.draw(st.integers(0, len(damaged)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of damaged metadata; the worker's users do not see it
        for encoded in (bytes(damaged), bytes(damaged[:cut_off])):
            try:
                image = load(encoded, ImageLimits(max_pixels=100_000))
            except ImageError:
                continue
            assert image.pixels.ndim == 3
            assert 0 < image.pixels.size <= 300_000
