from dataclasses import replace

import numpy as np
import pytest
import torch

from deploy.demo_model.pictures.drawing import encode
from deploy.demo_model.pictures.raster import Sheet, crops, pixels
from deploy.demo_model.pictures.scenes import scene
from stoop_worker.images import CropGeometry, ImageLimits, cut, load

GEOMETRY = CropGeometry()


@pytest.mark.parametrize("many_crops", [False, True])
def test_tensors_give_the_pixels_and_crops_of_the_worker_s_pipeline(many_crops: bool) -> None:
    """Grain is left out (it is drawn again); a JPEG's chroma comes back by another filter, hence the tolerance."""
    for seed in range(3):
        shown = scene(seed, many_crops=many_crops)
        shown = replace(shown, background=replace(shown.background, grain=0.0))
        real = load(encode(shown), ImageLimits())
        drawn = pixels(Sheet.of([shown]))[0].permute(1, 2, 0).numpy()
        assert np.abs(drawn - real.pixels).mean() < 1
        real_crops = cut(real, GEOMETRY).pixels
        made = crops(torch.from_numpy(real.pixels.copy()).permute(2, 0, 1)[None].float(), GEOMETRY)[0].numpy()
        assert len(made) == (len(real_crops) if many_crops else 1)
        assert np.abs(made.astype(int) - real_crops[: len(made)]).max() <= 1


def test_scenes_of_one_sheet_do_not_mix() -> None:
    first = replace(scene(1, many_crops=False), width=300, height=260)
    second = replace(scene(2, many_crops=False), width=300, height=260)
    quiet = [replace(s, background=replace(s.background, grain=0.0)) for s in (first, second)]
    both = pixels(Sheet.of(quiet))
    for row, one in enumerate(quiet):
        assert torch.equal(both[row], pixels(Sheet.of([one]))[0])
