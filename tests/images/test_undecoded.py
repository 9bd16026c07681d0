"""JPEGs for a GPU's decoder: the usual ones are left as they are, and all others to `load`."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import simplejpeg
from PIL import Image as Pillow

from stoop_worker.images import ImageLimits, Jpeg, PatchRule, PixelLimits, fitting_size, left_undecoded, load
from tests.images.pictures import encode, gradient

LIMITS = ImageLimits()
PIXELS = gradient(60, 85)
PLAIN = encode(PIXELS, "JPEG")
FRAME = PLAIN.index(b"\xff\xc0")
FRAME_OF_ONE_BLOCK = b"\xff\xc0\x00\x11\x08\x00\x08\x00\x08" + PLAIN[FRAME + 9 : FRAME + 19]

OTHERS = {
    "progressive": encode(PIXELS, "JPEG", progressive=True),
    "grey": encode(PIXELS[:, :, 0], "JPEG"),
    "RGB": encode(PIXELS, "JPEG", keep_rgb=True),
    "CMYK": encode(Pillow.fromarray(PIXELS).convert("CMYK"), "JPEG"),
    "4:1:1": simplejpeg.encode_jpeg(PIXELS, colorsubsampling="411"),
    "PNG": encode(PIXELS, "PNG"),
    "without an end": PLAIN[:-2],
    "half a photo": PLAIN[: len(PLAIN) // 2],
    "two frames": PLAIN[:FRAME] + FRAME_OF_ONE_BLOCK + PLAIN[FRAME:],
    "no frame": PLAIN[:FRAME] + PLAIN[FRAME + 19 :],
    "no segment": b"\xff\xd8\xff\xd9",
    "only ends": b"\xff\xd8" + b"\xff\xd9" * 3,
    "empty": b"",
}


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_a_photo_keeps_its_bytes_with_its_size_and_the_digest_of_its_pixels(subsampling: str) -> None:
    encoded = encode(PIXELS, "JPEG", subsampling=subsampling)
    jpeg = left_undecoded(encoded, LIMITS)
    assert jpeg is not None
    assert bytes(jpeg.encoded) == encoded
    assert jpeg.size == (60, 85)
    assert jpeg.digest == load(encoded, LIMITS).digest


def test_its_metadata_stay_behind() -> None:
    exif = Pillow.Exif()
    exif[0x0112] = 6  # a quarter turn, which `load` ignores as well
    jpeg = left_undecoded(encode(PIXELS, "JPEG", exif=exif), LIMITS)
    assert jpeg is not None
    assert b"Exif" not in bytes(jpeg.encoded) and jpeg.size == (60, 85)


def test_its_bytes_lie_in_the_given_memory() -> None:
    given: list[npt.NDArray[np.uint8]] = []

    def allocate(shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
        given.append(np.empty(shape, dtype=np.uint8))
        return given[-1]

    jpeg = left_undecoded(PLAIN, LIMITS, allocate=allocate)
    assert jpeg is not None and jpeg.encoded is given[-1]


@pytest.mark.parametrize("encoded", OTHERS.values(), ids=OTHERS.keys())
def test_any_other_file_is_left_to_load(encoded: bytes) -> None:
    assert left_undecoded(encoded, LIMITS) is None


@pytest.mark.parametrize(
    "limits",
    [
        replace(LIMITS, max_pixels=60 * 85 - 1),
        replace(LIMITS, max_bytes=len(PLAIN) - 1),
        replace(LIMITS, formats=("PNG",)),
    ],
    ids=["pixels", "bytes", "formats"],
)
def test_so_is_one_beyond_a_limit(limits: ImageLimits) -> None:
    assert left_undecoded(PLAIN, limits) is None


def test_a_rule_gives_the_size_to_resize_to_and_leaves_a_much_larger_photo_to_load() -> None:
    rule = PatchRule(min_pixels=1024, max_pixels=4096)
    jpeg = left_undecoded(PLAIN, LIMITS, rule)
    assert isinstance(jpeg, Jpeg) and jpeg.size == fitting_size(60, 85, rule)
    assert left_undecoded(PLAIN, LIMITS, rule, pixels=PixelLimits(max_pixels=2048)) is None
