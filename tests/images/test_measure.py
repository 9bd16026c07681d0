"""The size of decoded pixels, read from the header alone."""

import io
import random

import pytest
from PIL import Image as Pillow

from stoop_worker.images import ImageLimits, decoded_bytes, quickly_decoded_bytes

LIMITS = ImageLimits()


def encoded(mode: str = "RGB", form: str = "JPEG", **options: object) -> bytes:
    file = io.BytesIO()
    Pillow.new(mode, (60, 40)).save(file, form, **options)
    return file.getvalue()


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_a_jpeg_is_measured_at_once(mode: str) -> None:
    assert quickly_decoded_bytes(encoded(mode), LIMITS) == decoded_bytes(encoded(mode), LIMITS) == 60 * 40 * 3


def test_an_image_with_too_many_pixels_takes_no_memory() -> None:
    few = ImageLimits(max_pixels=60 * 40 - 1)
    assert quickly_decoded_bytes(encoded(), few) == decoded_bytes(encoded(), few) == 0


def test_other_images_are_left_to_the_reader_that_knows_all_formats() -> None:
    assert quickly_decoded_bytes(encoded(form="PNG"), LIMITS) is None
    assert quickly_decoded_bytes(encoded(), ImageLimits(formats=("PNG",))) is None
    profile = random.Random(1).randbytes(70_000)
    assert quickly_decoded_bytes(encoded(icc_profile=profile), LIMITS) is None
    assert decoded_bytes(encoded(icc_profile=profile), LIMITS) == 60 * 40 * 3


@pytest.mark.parametrize("damaged", [b"", b"\xff\xd8\xff", encoded()[:30], b"\xff\xd8" + b"\xff" * 100_000])
def test_damaged_images_are_not_measured(damaged: bytes) -> None:
    assert quickly_decoded_bytes(damaged, LIMITS) is None


def test_a_jpeg_of_unusual_subsampling_is_left_to_the_other_reader() -> None:
    jpeg = bytearray(encoded(subsampling="4:4:4"))
    jpeg[jpeg.index(b"\xff\xc0") + 11] = 0x14
    assert quickly_decoded_bytes(bytes(jpeg), LIMITS) is None
    assert decoded_bytes(bytes(jpeg), LIMITS) == 60 * 40 * 3
