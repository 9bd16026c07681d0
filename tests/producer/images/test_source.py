import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stoop.errors import ImageUnreadable
from stoop.images.source import encoded, fingerprint, identify, load


def noise(mode: str = "RGB", size: tuple[int, int] = (32, 24)) -> Image.Image:
    return Image.merge("RGB", [Image.effect_noise(size, 60) for _ in range(3)]).convert(mode)


def opened(written: bytes) -> Image.Image:
    with Image.open(io.BytesIO(written)) as image:
        image.load()
    return image


def test_bytes_and_files_go_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"whatever")
    assert (
        encoded(load(tmp_path / "a")) == encoded(load(str(tmp_path / "a"))) == encoded(load(b"whatever")) == b"whatever"
    )
    assert encoded(load(bytearray(b"whatever"))) == b"whatever"


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "1", "CMYK"])
def test_pixels_go_without_loss_as_moondream_sees_them(mode: str) -> None:
    image = noise(mode)
    written = opened(encoded(load(image)))
    assert written.format == "PNG"
    assert written.tobytes() == image.convert("RGB").tobytes()


def test_a_photograph_goes_as_a_photograph() -> None:
    photograph = io.BytesIO()
    noise(size=(8, 8)).resize((256, 256)).save(photograph, "JPEG", quality=90)
    image = opened(photograph.getvalue())
    written = encoded(load(image))
    assert identify(written, "x") == ("JPEG", "image/jpeg")
    before, after = np.asarray(image, np.int16), np.asarray(opened(written), np.int16)
    assert np.abs(before - after).mean() < 1
    turned = image.rotate(90)  # an image that Pillow has transformed is no longer a photograph
    assert identify(encoded(load(turned)), "x")[0] == "PNG"


@pytest.mark.parametrize("shape", [(24, 32, 3), (24, 32, 4), (24, 32, 1), (24, 32)])
def test_arrays_are_images(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    written = np.asarray(opened(encoded(load(array))))
    assert written.shape == (24, 32, 3)
    colours = array.reshape(24, 32, -1)[:, :, :3]
    assert np.array_equal(written, np.broadcast_to(colours, (24, 32, 3)))


def test_arrays_with_unusual_strides_are_images_too() -> None:
    array = np.random.default_rng(1).integers(0, 256, (24, 32, 3), np.uint8)
    assert encoded(load(array[::-1, ::2])) == encoded(load(array[::-1, ::2].copy()))
    assert encoded(load(array[:, :, ::-1])) == encoded(load(array[:, :, ::-1].copy()))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 4, 3)), "uint8"),
        (np.zeros((4, 4, 3), np.int8), "uint8"),
        (np.zeros((3, 4, 4), np.uint8)[:, :, :2], "shape"),
        (np.zeros((2, 4, 4, 3), np.uint8), "shape"),
        (np.zeros((0, 4, 3), np.uint8), "shape"),
        (np.zeros(4, np.uint8), "shape"),
    ],
)
def test_other_arrays_are_refused(array: "np.ndarray[object, object]", message: str) -> None:  # type: ignore[type-var]
    with pytest.raises(ImageUnreadable, match=message):
        load(array)


def test_the_same_pixels_have_one_fingerprint_and_others_another() -> None:
    image = noise()
    array = np.asarray(image)
    assert fingerprint(load(image)) == fingerprint(load(image.copy())) == fingerprint(load(array))
    changed = array.copy()
    changed[0, 0, 0] ^= 1
    others = [fingerprint(load(other)) for other in (changed, array.reshape(32, 24, 3), b"bytes")]
    assert len({fingerprint(load(image)), *others}) == 4


@pytest.mark.parametrize("given", [7, None, object(), ["a", "b"]])
def test_an_input_that_is_not_an_image_is_refused(given: object) -> None:
    with pytest.raises(ImageUnreadable, match="is not an image"):
        load(given)


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(ImageUnreadable, match="/dev/zero has more than 256 MiB"):
        load("/dev/zero")
