"""JPEGs decoded by the GPU's own decoder: libjpeg-turbo's pixels but for one level, and no harm by damaged files."""

import numpy as np
import numpy.typing as npt
import pytest
import simplejpeg
import torch

from stoop_worker.images import ImageLimits, Jpeg, left_undecoded
from stoop_worker.kernels.jpeg import decoder_of
from stoop_worker.models.blocks.pixels import send_pixels
from tests.images.pictures import encode, gradient

DEVICE = torch.device("cuda")
SIZES = [(1, 1), (17, 33), (63, 65), (600, 850), (40, 3000)]


@pytest.fixture(autouse=True, scope="module")
def needs_the_decoder() -> None:
    try:
        decoder_of(DEVICE)
    except (OSError, RuntimeError) as error:
        pytest.skip(f"no decoder of JPEGs: {error}")


def photo(height: int, width: int, seed: int = 1) -> npt.NDArray[np.uint8]:
    grain = np.random.default_rng(seed).normal(0, 4, (height, width, 3))
    return np.clip(gradient(height, width) // 8 + 100 + grain, 0, 255).astype(np.uint8)


def undecoded(encoded: bytes) -> Jpeg:
    jpeg = left_undecoded(encoded, ImageLimits())
    assert jpeg is not None
    return jpeg


def decoded(encoded: bytes) -> npt.NDArray[np.uint8]:
    return send_pixels([undecoded(encoded)], DEVICE)[0].cpu().numpy()


def differences(found: npt.NDArray[np.uint8], encoded: bytes) -> npt.NDArray[np.int16]:
    return np.abs(found.astype(np.int16) - simplejpeg.decode_jpeg(encoded, "RGB"))


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize("options", [{}, {"optimize": True}, {"restart_marker_rows": 1}, {"quality": 100}])
def test_the_pixels_are_those_of_libjpeg_turbo(
    height: int, width: int, subsampling: str, options: dict[str, object]
) -> None:
    encoded = encode(photo(height, width), "JPEG", subsampling=subsampling, **options)
    assert differences(decoded(encoded), encoded).max() <= 2


def test_many_photos_in_a_row_do_not_mix() -> None:
    several = [encode(photo(200 + 8 * seed, 300, seed), "JPEG") for seed in range(24)]
    sent = send_pixels([undecoded(encoded) for encoded in several], DEVICE)
    for pixels, encoded in zip(sent, several, strict=True):
        assert differences(pixels.cpu().numpy(), encoded).max() <= 2


def test_a_file_that_is_said_to_have_another_size_is_not_written_beyond_its_pixels() -> None:
    encoded = np.frombuffer(encode(photo(600, 850), "JPEG"), dtype=np.uint8)
    assert decoder_of(DEVICE).decode(encoded, 60, 85) is None


def test_damaged_files_have_pixels_and_harm_no_later_one() -> None:
    whole = encode(photo(300, 400), "JPEG")
    random = np.random.default_rng(3)
    for _ in range(60):
        damaged = bytearray(whole)
        damaged[random.integers(700, len(damaged) - 2)] = random.integers(256)
        jpeg = left_undecoded(bytes(damaged), ImageLimits())
        if jpeg is not None:
            assert send_pixels([jpeg], DEVICE)[0].shape == (*jpeg.size, 3)
    without_tables = whole.replace(b"\xff\xc4", b"\xff\xe4")
    grey = Jpeg(np.frombuffer(without_tables, dtype=np.uint8), (300, 400), b"damaged")
    assert send_pixels([grey], DEVICE)[0].shape == (300, 400, 3)
    torch.cuda.synchronize()
    assert differences(decoded(whole), whole).max() <= 2
