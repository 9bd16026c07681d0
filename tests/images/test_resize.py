import sys

import numpy as np
import pytest

from stoop_worker.errors import ConfigError
from stoop_worker.images import CropGeometry, Crops, Image, check_resizer, cut, made_ready
from tests.images.pictures import gradient

BY_LIBVIPS = CropGeometry(crop_size=12, patch_size=2, overlap_margin=1, max_crops=6, resize="libvips")


def test_libvips_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyvips", None)
    check_resizer("pillow")
    with pytest.raises(ConfigError, match=r"vision.resize in config.json is libvips.*pip install 'stoop\[vips\]'"):
        check_resizer("libvips")


def test_libvips_resizes_even_where_the_device_would() -> None:
    pytest.importorskip("pyvips")
    check_resizer("libvips")
    image = Image.of(gradient(40, 30))
    ready = made_ready(image, BY_LIBVIPS, on_device=True)
    assert isinstance(ready, Crops) and np.array_equal(ready.pixels, cut(image, BY_LIBVIPS).pixels)
    by_pillow = cut(image, CropGeometry(crop_size=12, patch_size=2, overlap_margin=1, max_crops=6)).pixels
    difference = np.abs(ready.pixels.astype(int) - by_pillow)
    assert 0 < difference.max() < 16, "of a smooth picture both make nearly the same crops"
