"""Runs an exam on held-out scenes; images are prepared as by the worker, and the plain reader answers."""

from collections.abc import Iterator, Sequence
from random import Random

import torch
from torch import Tensor

from deploy.demo_model.dense_vision import project
from deploy.demo_model.exam import Marks, asks
from deploy.demo_model.feed import seen_scenes
from deploy.demo_model.learner import Learner
from deploy.demo_model.pictures.scenes import Scene
from deploy.demo_model.reader import Reader
from stoop_worker.images import CropGeometry, select_tiling
from stoop_worker.kernels.stitch_pool.reference import stitch_pool
from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.moondream import vision
from stoop_worker.models.moondream.weights import Weights

__all__ = ["sit"]

_AT_ONCE = 32  # scenes whose prompts are answered together
_FIRST_SEED = 1_000_000


def sit(learner: Learner, tokenizer: Tokenizer, *, count: int, workers: int) -> dict[str, dict[str, float]]:
    """Return the scores of `count` scenes in one crop, of `count` in many, and of the latter without local crops."""
    weights = Weights.of(
        {name: tensor.detach().to(learner.dtype) for name, tensor in learner.tensors.items()}, learner.config
    )
    reader = Reader(learner.config, weights, tokenizer)
    scores: dict[str, dict[str, float]] = {}
    for name, many_crops, blind in (
        ("one crop", False, False),
        ("many crops", True, False),
        ("no local crops", True, True),
    ):
        seeds = [(_FIRST_SEED + seed, many_crops) for seed in range(count)]
        marks = Marks()
        for group in _grouped(seen_scenes(seeds, workers=workers)):
            _answer(reader, learner, group, marks, blind=blind)
        scores[name] = {kind: round(score, 4) for kind, score in marks.table().items()}
    return scores


def _grouped(seen: Iterator[tuple[Scene, Tensor]]) -> Iterator[list[tuple[Scene, Tensor]]]:
    group: list[tuple[Scene, Tensor]] = []
    for one in seen:
        group.append(one)
        if len(group) == _AT_ONCE:
            yield group
            group = []
    if group:
        yield group


def _answer(
    reader: Reader, learner: Learner, group: Sequence[tuple[Scene, Tensor]], marks: Marks, *, blind: bool
) -> None:
    prompts = [(index, ask) for index, (shown, _) in enumerate(group) for ask in asks(shown, Random(shown.seed))]
    with torch.no_grad():
        image_IPC = torch.stack([_embed(reader, learner, shown, crops, blind=blind) for shown, crops in group])
    for (index, ask), reply in zip(prompts, reader.replies(image_IPC, prompts), strict=True):
        marks.mark(ask, group[index][0], reply)


def _embed(reader: Reader, learner: Learner, shown: Scene, crops_NSS3: Tensor, *, blind: bool) -> Tensor:
    config, weights = reader.config.vision, reader.weights.vision
    device = weights.pos_emb.device
    features = vision.features(crops_NSS3.to(device), weights, config, dtype=learner.dtype)
    tiling = select_tiling(shown.height, shown.width, CropGeometry())
    local = features[0]
    if tiling.count > 1:
        local = stitch_pool(features[1:], rows=tiling.rows, cols=tiling.cols, margin=config.overlap_margin)
    return project(features[0], torch.zeros_like(local) if blind else local, weights)
