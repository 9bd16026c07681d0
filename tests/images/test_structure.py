"""Files that ask for much more work than their pixels are refused at once, and honest ones keep their pixels."""

import contextlib
import io
import random
import struct
import time
import warnings
import zlib

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image as Pillow

from stoop_worker.errors import ImageError, ImageTooLarge, ImageUndecodable
from stoop_worker.images import ImageLimits, load
from stoop_worker.images.structure import lean
from tests.images.bombs import (
    exif_bomb,
    gif_of_blocks,
    gif_of_comments,
    png_of_chunks,
    rle_bmp,
    same,
    scan_bomb,
    segment_bomb,
    sequential_scan_bomb,
    tiff,
)
from tests.images.pictures import encode, gradient

LIMITS = ImageLimits()
MEGABYTE = zlib.compress(bytes(1_000_000))


def strips(compression: int, count: int, size: int, **fields: int | bytes) -> dict[int, int | bytes]:
    """Fields of a grey TIFF of `count` rows, whose strips are all the same `size` bytes at the file's begin."""
    plain: dict[int, int | bytes] = {256: 64, 257: count, 258: 8, 259: compression, 262: 1, 277: 1, 278: 1}
    return plain | {273: same(8, count), 279: same(size, count)} | {int(tag[1:]): each for tag, each in fields.items()}


def tiles(across: int, down: int) -> dict[int, int | bytes]:
    """Fields of a TIFF of one row of 20,000 tiles, each with more rows than the image."""
    count = 20_000
    plain: dict[int, int | bytes] = {256: across * count, 257: 1, 258: 8, 259: 8, 262: 1, 277: 1}
    return plain | {322: across, 323: down, 324: same(8, count), 325: same(100, count)}


BOMBS = {
    "a JPEG of 6,000 scans": (lambda: scan_bomb(2000, 6000), "more than 100 scans"),
    "a JPEG of 101 scans": (lambda: scan_bomb(16, 101), "more than 100 scans"),
    "a large JPEG of 90 scans": (lambda: scan_bomb(8000, 90), "scans and more take too long"),
    "a sequential JPEG of 200 scans": (lambda: sequential_scan_bomb(2000, 200, apart=True), "more than 100 scans"),
    "a JPEG of 700,000 segments": (lambda: segment_bomb(700_000), "more than 5000 segments"),
    "a PNG of 700,000 chunks": (lambda: png_of_chunks(b"teSt", b"", 700_000), "more than 65536 chunks"),
    "a PNG of 700,000 pieces": (lambda: png_of_chunks(b"IDAT", b"", 700_000), "more than 65536 chunks"),
    "a GIF of 2,000,000 blocks": (lambda: gif_of_blocks(2_000_000), "more than 100000 blocks"),
    "a GIF of 700,000 comments": (lambda: gif_of_comments(700_000), "more than 100000 blocks"),
    "a BMP of short rows": (lambda: rle_bmp(8000, 8000), "save it as PNG"),
    "a TIFF of 300,000 strips": (lambda: tiff(strips(1, 300_000, 64), bytes(64)), "300000 strips or tiles"),
    "a TIFF of one strip, 10,000 times": (lambda: tiff(strips(32773, 10_000, 10**6), bytes(10**6)), "they overlap"),
    "a TIFF of tall tiles": (lambda: tiff(tiles(16, 1 << 16), bytes(100)), "tiles have 20971520000 pixels"),
    "a TIFF of progressive JPEGs": (
        lambda: tiff(strips(7, 1, 2000), scan_bomb(64, 90).ljust(2000)),
        "save it again without progression",
    ),
}
PASSED_OVER = {
    "EXIF fields that are all the same 60 KB": lambda: exif_bomb(3000),
    "profiles that inflate": lambda: png_of_chunks(b"iCCP", b"a\0\0" + MEGABYTE, 6000),
    "texts that inflate": lambda: png_of_chunks(b"zTXt", b"a\0\0" + MEGABYTE, 6000),
    "texts behind the pixels": lambda: png_of_chunks(b"zTXt", b"a\0\0" + MEGABYTE, 6000, at_end=True),
    "700,000 chunks behind the pixels": lambda: png_of_chunks(b"teSt", b"", 700_000, at_end=True),
    "TIFF fields that are all the same 3 MB": lambda: tiff(strips(1, 8, 64), bytes(3_000_000), more=2000),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_of_work_are_refused(name: str) -> None:
    make, reason = BOMBS[name]
    encoded = make()
    began = time.thread_time()
    with pytest.raises(ImageTooLarge, match=reason):
        load(encoded, LIMITS)
    assert time.thread_time() - began < 0.5


@pytest.mark.parametrize("name", PASSED_OVER)
def test_metadata_costs_nothing(name: str) -> None:
    encoded = PASSED_OVER[name]()
    began = time.thread_time()
    load(encoded, LIMITS)
    assert time.thread_time() - began < 0.5


def test_a_compressed_tiff_without_sizes_of_strips_is_damaged() -> None:
    fields = strips(32773, 100, 64)
    del fields[279]
    with pytest.raises(ImageUndecodable, match="no sizes"):
        load(tiff(fields, b"\xc1\0" * 32), LIMITS)


def test_a_scan_in_a_thumbnail_or_behind_the_image_does_not_count() -> None:
    thumbnails = b"Exif\0\0" + b"\xff\xda" * 1000
    plain = encode(gradient(20, 30), "JPEG")
    noted = plain[:2] + b"\xff\xe1" + struct.pack(">H", 2 + len(thumbnails)) + thumbnails + plain[2:]
    noted += b"\xff\xda" * 1000
    assert (load(noted, LIMITS).pixels == load(plain, LIMITS).pixels).all()


def test_scans_behind_one_of_all_components_are_not_decoded() -> None:
    encoded = sequential_scan_bomb(1000, 1000, apart=False)
    began = time.thread_time()
    with contextlib.suppress(ImageError):
        load(encoded, LIMITS)
    assert time.thread_time() - began < 0.5


@pytest.mark.parametrize("side", [16, 500])
def test_a_hundred_scans_are_accepted(side: int) -> None:
    assert load(scan_bomb(side, 90), LIMITS).pixels.shape == (side, side, 3)


PIXELS = gradient(40, 50)
PALETTE = Pillow.fromarray(PIXELS).quantize(16)
GREY = Pillow.fromarray(PIXELS).convert("L")


def big_tiff(**options: object) -> bytes:
    file = io.BytesIO()
    Pillow.fromarray(PIXELS).save(file, "TIFF", big_tiff=True, **options)
    return file.getvalue()


HONEST = {
    "PNG": encode(PIXELS, "PNG"),
    "PNG palette": encode(PALETTE, "PNG", transparency=3),
    "PNG texts": encode(PIXELS, "PNG", dpi=(300, 300), icc_profile=bytes(3000), exif=Pillow.Exif()),
    "PNG grey": encode(GREY, "PNG"),
    "PNG animated": encode(
        Pillow.fromarray(PIXELS), "PNG", save_all=True, append_images=[Pillow.fromarray(PIXELS[::-1])]
    ),
    "GIF": encode(PALETTE, "GIF"),
    "GIF animated": encode(PALETTE, "GIF", save_all=True, append_images=[PALETTE.rotate(90)], loop=0),
    "GIF transparent": encode(PALETTE, "GIF", transparency=3, comment=b"made" * 200),
    "BMP": encode(PIXELS, "BMP"),
    "BMP palette": encode(PALETTE, "BMP"),
    "WEBP": encode(PIXELS, "WEBP"),
    "WEBP animated": encode(
        Pillow.fromarray(PIXELS), "WEBP", save_all=True, append_images=[Pillow.fromarray(PIXELS[::-1])]
    ),
    "TIFF": encode(PIXELS, "TIFF"),
    "TIFF big": big_tiff(),
    "TIFF big LZW": big_tiff(compression="tiff_lzw"),
    "TIFF palette": encode(PALETTE, "TIFF"),
    "TIFF turned": encode(PIXELS, "TIFF", tiffinfo={274: 6}),
    "TIFF described": encode(PIXELS, "TIFF", tiffinfo={270: "a description" * 100}, dpi=(300, 300)),
    "TIFF of two pages": encode(
        Pillow.fromarray(PIXELS), "TIFF", save_all=True, append_images=[Pillow.fromarray(PIXELS[::-1])]
    ),
    "TIFF group 4": encode(GREY.convert("1"), "TIFF", compression="group4"),
    "TIFF CMYK": encode(Pillow.fromarray(PIXELS).convert("CMYK"), "TIFF", compression="packbits"),
} | {f"TIFF {kind}": encode(PIXELS, "TIFF", compression=kind) for kind in ("tiff_lzw", "tiff_adobe_deflate", "jpeg")}


def pillows(encoded: bytes) -> npt.NDArray[np.uint8] | None:
    """Return Pillow's decoding of the whole file; None if it refuses."""
    try:
        with Pillow.open(io.BytesIO(encoded), formats=LIMITS.formats) as opened:
            return None if opened.width * opened.height > 10**6 else np.asarray(opened.convert("RGB"))
    except Exception:
        return None


@pytest.mark.parametrize("name", HONEST)
def test_honest_files_have_the_same_pixels_as_with_pillow(name: str) -> None:
    expected = pillows(HONEST[name])
    assert expected is not None
    assert (load(HONEST[name], LIMITS).pixels == expected).all()


def test_a_damaged_file_has_the_same_pixels_as_with_pillow() -> None:
    """A file that Pillow reads is refused only for its work, and no file has other pixels."""
    chance = random.Random(7)
    files = list(HONEST.values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of damaged metadata
        for _ in range(4000):
            damaged = bytearray(chance.choice(files))
            at = min(chance.randrange(len(damaged)), chance.randrange(len(damaged)))
            if chance.random() < 0.6:
                damaged[at] = chance.randrange(256)
            else:
                del damaged[at : at + chance.randrange(1, 20)]
            agree(bytes(damaged))


def agree(encoded: bytes) -> None:
    expected = pillows(encoded)
    try:
        found = load(encoded, ImageLimits(max_pixels=10**6)).pixels
    except ImageError:
        assert expected is None
        return
    if expected is not None:
        assert found.shape == expected.shape
        assert (found == expected).all()


def test_a_file_without_metadata_is_not_copied() -> None:
    encoded = encode(PIXELS, "JPEG")
    assert lean(encoded, LIMITS.max_pixels) is encoded
