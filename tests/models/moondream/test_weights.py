import math
from dataclasses import fields, is_dataclass

import pytest
import torch
from torch import Tensor

from stoop_worker.errors import CheckpointError
from stoop_worker.models.moondream.config import ModelConfig, released
from stoop_worker.models.moondream.shapes import tensor_shapes
from stoop_worker.models.moondream.weights import Weights
from tests.support.tiny_model import formula_weights, tiny_config


def leaves(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    parts = (
        value
        if isinstance(value, tuple)
        else [getattr(value, f.name) for f in fields(value)]
        if is_dataclass(value)
        else []
    )
    return [leaf for part in parts for leaf in leaves(part)]


def test_released_sizes_add_up_to_the_released_model() -> None:
    counts = {name: math.prod(shape) for name, shape in tensor_shapes(ModelConfig()).items()}
    by_part = {
        part: sum(count for name, count in counts.items() if name.startswith(part))
        for part in ("text", "vision", "region")
    }
    assert by_part == {"text": 1_418_270_720, "vision": 412_987_248 + 35_661_824, "region": 60_317_312}


def test_released_sizes_of_moondream_3_add_up_too() -> None:
    counts = {name: math.prod(shape) for name, shape in tensor_shapes(released("moondream3")).items()}
    text = sum(count for name, count in counts.items() if name.startswith("text"))
    region = sum(count for name, count in counts.items() if name.startswith("region"))
    assert (text, region, sum(counts.values())) == (8_812_101_632, 7_876_224, 9_268_626_928)


def test_every_tensor_has_one_place_and_is_not_copied() -> None:
    tensors = formula_weights(tiny_config())
    placed = leaves(Weights.of(tensors, tiny_config()))
    assert sorted(map(id, placed)) == sorted(map(id, tensors.values()))


def test_a_missing_tensor_is_named_with_its_shape() -> None:
    tensors = formula_weights(tiny_config())
    del tensors["text.blocks.1.attn.qkv.bias"]
    with pytest.raises(CheckpointError, match=r"tensor text.blocks.1.attn.qkv.bias \(384,\) is missing"):
        Weights.of(tensors, tiny_config())


def test_a_wrong_shape_is_named_with_both_shapes() -> None:
    tensors = formula_weights(tiny_config()) | {"text.wte": torch.zeros(500, 128)}
    with pytest.raises(
        CheckpointError, match=r"text.wte: the config expects \(512, 128\), the checkpoint has \(500, 128\)"
    ):
        Weights.of(tensors, tiny_config())


def test_an_unknown_tensor_is_named() -> None:
    tensors = formula_weights(tiny_config()) | {"text.blocks.0.attn.tau.wq": torch.zeros(2, 384)}
    with pytest.raises(CheckpointError, match=r"does not know: text.blocks.0.attn.tau.wq \(1 in all\)"):
        Weights.of(tensors, tiny_config())
