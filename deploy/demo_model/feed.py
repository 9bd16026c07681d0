"""Makes batches for training in worker processes, and images for exams as the worker prepares them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from deploy.demo_model.learner import Class, Pages
from deploy.demo_model.pictures.drawing import encode
from deploy.demo_model.pictures.raster import Sheet, crops, pixels
from deploy.demo_model.pictures.scenes import Scene, compose, frame, scene
from deploy.demo_model.teach import Teacher
from stoop_worker.images import CropGeometry, ImageLimits, cut, load, select_tiling

__all__ = ["Batch", "Mix", "batches", "classes", "seen_scenes"]

_GEOMETRY = CropGeometry()
_BLANK_PAGES, _BLANK_STEPS = 16, 48


@dataclass(frozen=True, slots=True)
class Mix:
    """The contents of a batch: groups of scenes of one size; a group of many crops has at most `crops` crops in all.

    A batch always has `scenes` scenes, so its shapes never change.
    """

    scenes: int = 80
    single_groups: int = 2
    crops: int = 144
    many_groups: int = 2
    steps: int = 262

    @property
    def most_crops(self) -> int:
        """Return the largest number of crops in a batch."""
        least_many = self.many_groups * max(1, self.crops // (1 + _GEOMETRY.max_crops))
        return self.many_groups * self.crops + self.scenes - least_many


@dataclass(frozen=True, slots=True)
class Batch:
    """Scenes that are not yet drawn, their pages, and some pages without an image, all on the host."""

    sheets: tuple[Sheet, ...]
    pages: Pages
    blank: Pages

    def pin_memory(self) -> "Batch":
        """Return the batch in pinned memory, so that the device can copy it asynchronously."""
        return Batch(
            tuple(sheet.pin_memory() for sheet in self.sheets), self.pages.pin_memory(), self.blank.pin_memory()
        )


class _Batches(IterableDataset[Batch]):
    def __init__(self, teacher: Teacher, mix: Mix, seed: int) -> None:
        self.teacher, self.mix, self.seed = teacher, mix, seed

    def __iter__(self) -> Iterator[Batch]:
        info = get_worker_info()
        random = Random(f"train {self.seed} {info.id if info else 0}")
        while True:
            groups = [self._many(random) for _ in range(self.mix.many_groups)]
            left = self.mix.scenes - sum(map(len, groups))
            for group in range(self.mix.single_groups, 0, -1):
                width, height = frame(random, many_crops=False)
                groups.append([compose(random, -1, width, height) for _ in range(left // group)])
                left -= left // group
            pages = [self.teacher.page(scene, random, self.mix.steps) for group in groups for scene in group]
            blank = [self.teacher.blank_page(random, _BLANK_STEPS) for _ in range(_BLANK_PAGES)]
            yield Batch(tuple(Sheet.of(group) for group in groups), Pages.of(pages), Pages.of(blank))

    def _many(self, random: Random) -> list[Scene]:
        width, height = frame(random, many_crops=True)
        count = max(1, self.mix.crops // (1 + select_tiling(height, width, _GEOMETRY).count))
        return [compose(random, -1, width, height) for _ in range(count)]


def batches(teacher: Teacher, mix: Mix, *, seed: int, workers: int) -> Iterator[Batch]:
    """Return an endless series of batches; each seed gives other scenes."""
    source = _Batches(teacher, mix, seed)
    ahead = 4 if workers else None
    pinned = torch.cuda.is_available()
    return iter(DataLoader(source, batch_size=None, num_workers=workers, prefetch_factor=ahead, pin_memory=pinned))


def classes(batch: Batch, device: torch.device) -> list[Class]:
    """Draw and cut a batch's scenes on a device."""
    found = []
    for sheet in batch.sheets:
        placed = sheet.to(device)
        tiling = select_tiling(sheet.height, sheet.width, _GEOMETRY)
        found.append(Class(crops(pixels(placed), _GEOMETRY), placed.things_BK8, tiling))
    return found


class _Seen(Dataset[tuple[Scene, Tensor]]):
    def __init__(self, seeds: Sequence[tuple[int, bool]]) -> None:
        self.seeds = seeds

    def __len__(self) -> int:
        return len(self.seeds)

    def __getitem__(self, index: int) -> tuple[Scene, Tensor]:
        seed, many_crops = self.seeds[index]
        shown = scene(seed, many_crops=many_crops)
        seen = cut(load(encode(shown), ImageLimits()), _GEOMETRY)
        wanted = seen.pixels[: 1 if seen.tiling.count == 1 else None]
        return shown, torch.from_numpy(wanted.copy())


def seen_scenes(seeds: Sequence[tuple[int, bool]], *, workers: int) -> Iterator[tuple[Scene, Tensor]]:
    """Return scenes by (seed, many crops), with the crops that the worker cuts from their files."""
    return iter(DataLoader(_Seen(seeds), batch_size=None, num_workers=workers))
