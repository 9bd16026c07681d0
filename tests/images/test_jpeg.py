"""JPEGs go past Pillow's decoder to libjpeg-turbo's own: the same files are refused, and the pixels are Pillow's."""

import io
import random
import sys
import warnings
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
import simplejpeg
from PIL import Image as Pillow

from stoop_worker.errors import ImageError, ImageTooLarge, ImageUndecodable
from stoop_worker.images import ImageLimits, load
from stoop_worker.images.structure import lean
from tests.images.pictures import encode

LIMITS = ImageLimits(max_pixels=20_000)
SIZES = [(1, 1), (7, 3), (8, 8), (16, 16), (17, 33), (95, 64)]
SUBSAMPLINGS = ["4:4:4", "4:2:2", "4:2:0", "4:1:1"]
ADOBE = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00"  # the byte behind it says how the colours are written


def grainy(height: int, width: int) -> npt.NDArray[np.uint8]:
    """Pixels in which every coefficient of a JPEG is used."""
    noise = np.random.default_rng([height, width]).normal(0, 40, (height, width, 3))
    return np.clip(128 + np.cumsum(noise, axis=1) / 3, 0, 255).astype(np.uint8)


PIXELS = grainy(33, 50)
PLAIN = encode(PIXELS, "JPEG")


def with_sampling(jpeg: bytes, sampling: int) -> bytes:
    """Change the sampling factors that a 4:4:4 JPEG declares for its first channel."""
    at = jpeg.index(b"\xff\xc0") + 11
    return jpeg[:at] + bytes([sampling]) + jpeg[at + 1 :]


def variants() -> Iterator[tuple[str, bytes]]:
    for height, width in SIZES:
        pixels, size = grainy(height, width), f"{width}x{height}"
        for subsampling in SUBSAMPLINGS:
            for progressive in (False, True):
                named = f"{size} {subsampling}{' progressive' * progressive}"
                yield named, encode(pixels, "JPEG", subsampling=subsampling, progressive=progressive)
        yield f"{size} 4:4:0", simplejpeg.encode_jpeg(pixels, colorsubsampling="440")  # Pillow writes none
        yield f"{size} in raw RGB", encode(pixels, "JPEG", keep_rgb=True)
        for progressive in (False, True):
            grey = encode(Pillow.fromarray(pixels).convert("L"), "JPEG", progressive=progressive)
            yield f"{size} grey{' progressive' * progressive}", grey
    # the same scan read with other sampling ends early or late: both decoders must agree on it
    for sampling in (0x12, 0x14, 0x22, 0x41, 0x13, 0x31):
        yield f"4:4:4 said to be {sampling:#x}", with_sampling(encode(PIXELS, "JPEG", subsampling="4:4:4"), sampling)
    exif = Pillow.Exif()
    exif[0x0112] = 6
    written: dict[str, dict[str, object]] = {
        "of quality 1": {"quality": 1},
        "of quality 100": {"quality": 100},
        "optimized": {"optimize": True},
        "with EXIF": {"exif": exif},
        "with an ICC profile": {"icc_profile": bytes(3000)},
        "with a comment": {"comment": bytes(range(256))},
        "with restart markers between blocks": {"restart_marker_blocks": 1},
        "with restart markers between rows, progressive": {"restart_marker_rows": 1, "progressive": True},
        "with a resolution": {"dpi": (300, 300)},
    }
    for name, options in written.items():
        yield name, encode(PIXELS, "JPEG", **options)
    yield "followed by other bytes", PLAIN + b"more" * 100
    yield "CMYK", encode(Pillow.fromarray(PIXELS).convert("CMYK"), "JPEG")
    yield (
        "two pictures (MPO)",
        encode(Pillow.fromarray(PIXELS), "MPO", save_all=True, append_images=[Pillow.fromarray(PIXELS[::-1])]),
    )
    for transform in (0, 1, 2, 9):
        yield f"Adobe's transform {transform}", PLAIN[:2] + ADOBE + bytes([transform]) + PLAIN[2:]
    for marker in (0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD):
        yield f"said to be of kind {marker:#x}", PLAIN.replace(b"\xff\xc0", bytes([0xFF, marker]), 1)
    yield "of 12 bits", PLAIN.replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc0\x00\x11\x0c")
    yield "of two layers", PLAIN.replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc0\x00\x0e\x08")
    yield "with fill bytes", PLAIN[:2] + b"\xff\xff\xff" + PLAIN[2:]
    yield (
        "with two frames",
        PLAIN.replace(b"\xff\xc0", b"\xff\xc0\x00\x0b\x08\x20\x00\x20\x00\x01\x01\x11\x00\xff\xc0", 1),
    )
    for side in (0, 1, 49, 51, 400):
        at = PLAIN.index(b"\xff\xc0") + 7
        yield f"said to be {side} wide", PLAIN[:at] + side.to_bytes(2) + PLAIN[at + 2 :]


VARIANTS = dict(variants())


def pillows(encoded: bytes) -> npt.NDArray[np.uint8] | None:
    """Return Pillow's decoding of a file, as `load` did before; None if it refuses."""
    try:
        with Pillow.open(io.BytesIO(encoded), formats=LIMITS.formats) as opened:
            if opened.width * opened.height > LIMITS.max_pixels:
                return None
            return np.asarray(opened.convert("RGB"))
    except Exception:
        return None


def agree(encoded: bytes) -> bool:
    """Compare both ways; returns whether the file is an image. Faults that are not in the pixels do not count."""
    expected = pillows(encoded)
    if expected is None:
        expected = pillows(lean(encoded, LIMITS.max_pixels))
    try:
        found = load(encoded, LIMITS).pixels
    except ImageError:
        assert expected is None
        return False
    assert expected is not None
    assert found.shape == expected.shape
    assert (found == expected).all()
    return True


@pytest.fixture
def past_pillow(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each file, whether libjpeg-turbo accepted it."""
    taken: list[bool] = []
    whole = simplejpeg.decode_jpeg

    def watched(*given: object, **options: object) -> object:
        taken.append(False)
        found = whole(*given, **options)
        taken[-1] = True
        return found

    monkeypatch.setattr(sys.modules["stoop_worker.images.load"].simplejpeg, "decode_jpeg", watched)
    return taken


@pytest.mark.parametrize("encoded", VARIANTS.values(), ids=VARIANTS)
def test_pillow_agrees(encoded: bytes) -> None:
    agree(encoded)


@pytest.mark.parametrize(
    "name",
    [
        "64x95 4:2:0",
        "1x1 4:4:4",
        "3x7 4:2:2 progressive",
        "33x17 4:1:1",
        "33x17 4:4:0",
        "33x17 grey",
        "8x8 in raw RGB",
        "two pictures (MPO)",
    ],
)
def test_a_common_jpeg_is_decoded_without_pillow(name: str, past_pillow: list[bool]) -> None:
    assert agree(VARIANTS[name])
    assert past_pillow == [True]


@pytest.mark.parametrize("name", ["CMYK", "said to be of kind 0xc9", "said to be of kind 0xc3"])
def test_an_unusual_jpeg_is_left_to_pillow(name: str, past_pillow: list[bool]) -> None:
    agree(VARIANTS[name])
    assert past_pillow == []


def test_the_pixels_are_the_callers_own() -> None:
    pixels = load(PLAIN, LIMITS).pixels
    assert (pixels.shape, pixels.dtype) == ((33, 50, 3), np.uint8)
    assert pixels.flags.c_contiguous
    assert pixels.flags.writeable


@pytest.mark.parametrize("encoded", [PLAIN, encode(PIXELS, "PNG"), PLAIN[:2] + ADOBE + b"\x09" + PLAIN[2:]])
def test_pixels_go_to_the_callers_memory(encoded: bytes) -> None:
    made: list[npt.NDArray[np.uint8]] = []

    def allocate(shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
        made.append(np.zeros(shape, dtype=np.uint8))
        return made[-1]

    image = load(encoded, LIMITS, allocate)
    assert image.pixels is made[-1]
    assert (image.pixels == load(encoded, LIMITS).pixels).all()


def test_a_jpeg_over_the_limit_is_refused_before_it_is_decoded(past_pillow: list[bool]) -> None:
    load(PLAIN, ImageLimits(max_pixels=50 * 33))
    assert past_pillow == [True]
    with pytest.raises(ImageTooLarge, match="50 x 33 pixels: at most 1649"):
        load(PLAIN, ImageLimits(max_pixels=50 * 33 - 1))
    with pytest.raises(ImageUndecodable, match="not an image of an accepted format"):
        load(PLAIN, ImageLimits(formats=("PNG",)))
    assert past_pillow == [True]


@pytest.mark.parametrize("progressive", [False, True])
def test_every_truncation_ends_alike(progressive: bool) -> None:
    encoded = encode(PIXELS, "JPEG", progressive=progressive, quality=50)
    assert not any(agree(encoded[:size]) for size in range(len(encoded) - 2))
    assert agree(encoded)


def test_damage_ends_alike() -> None:
    """Flipped bits, lost and added bytes: in a few thousand files, both decoders refuse some and accept some."""
    chance = random.Random(5)
    images = [each for name, each in VARIANTS.items() if len(each) < 9000 and "said" not in name]
    taken = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of damaged metadata
        for _ in range(3000):
            damaged = bytearray(chance.choice(images))
            at = chance.randrange(len(damaged))
            match chance.randrange(4):
                case 0:
                    damaged[at] ^= 1 << chance.randrange(8)
                case 1:
                    del damaged[at : at + chance.randrange(1, 20)]
                case 2:
                    damaged[at:at] = chance.randbytes(chance.randrange(1, 6))
                case _:
                    damaged[at:at] = bytes([0xFF, chance.randrange(0xC0, 0x100), 0, chance.randrange(2, 9)])
            taken.append(agree(bytes(damaged)))
    assert 300 < sum(taken) < 2700
