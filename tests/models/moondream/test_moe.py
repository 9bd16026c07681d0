import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from deploy.demo_model import dense_text
from stoop_worker.errors import CheckpointError
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import LoadOptions
from stoop_worker.models.moondream.family import MoondreamFamily
from stoop_worker.models.moondream.model import Moondream, load
from stoop_worker.models.moondream.weights import MoE, TextWeights
from tests.support.tiny_model import formula_weights, tiny_moondream3_config, tiny_tokenizer

CONFIG = tiny_moondream3_config(vocab_size=512)
IDS = torch.tensor([0, 1, 40, 2, 60, 70, 3])


def in_float8(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with experts in float8, as released FP8 checkpoints hold them."""
    found = dict(tensors)
    for layer in (1, 2):
        for fc, kind in (("fc1", "up"), ("fc2", "down")):
            name = f"text.blocks.{layer}.mlp.{fc}.weight"
            scales = tensors[name].abs().amax(dim=-1) / 448
            found[name] = (tensors[name] / scales[..., None]).to(torch.float8_e4m3fn)
            found[f"text.blocks.{layer}.moe_quant.{kind}_scale"] = scales
    return found


def dequantised(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return plain tensors of the same values."""
    found = {name: tensor for name, tensor in tensors.items() if "moe_quant" not in name}
    for layer in (1, 2):
        for fc, kind in (("fc1", "up"), ("fc2", "down")):
            name = f"text.blocks.{layer}.mlp.{fc}.weight"
            found[name] = tensors[name].float() * tensors[f"text.blocks.{layer}.moe_quant.{kind}_scale"][..., None]
    return found


def write_shards(folder: Path, tensors: dict[str, Tensor], count: int = 3) -> Path:
    """Write a checkpoint in shards behind an index, every name with the prefix that released files have."""
    folder.mkdir()
    names = sorted(tensors)
    weight_map: dict[str, str] = {}
    for shard in range(count):
        file = f"model-{shard + 1:05}-of-{count:05}.safetensors"
        part = {f"model.{name}": tensors[name].contiguous() for name in names[shard::count]}
        save_file(part, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps({"model_type": "moondream3", **CONFIG.document()}))
    (folder / "tokenizer.json").write_text(tiny_tokenizer().document())
    return folder


def logits(weights: TextWeights) -> Tensor:
    x = dense_text.embed(IDS, weights)
    hidden = dense_text.forward(x, torch.arange(len(IDS)), weights, CONFIG.text, dense_text.dense_attend(0))
    return dense_text.logits(hidden, weights)


def test_a_checkpoint_in_shards_loads_as_the_model_in_memory(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "tiny3", formula_weights(CONFIG))
    loaded = load(folder, device="cpu", dtype=torch.float32)
    made = Moondream.of(CONFIG, formula_weights(CONFIG), tiny_tokenizer(), name="tiny3")
    assert loaded.config == CONFIG
    assert torch.equal(logits(loaded.weights.text), logits(made.weights.text))


def test_the_family_of_a_moondream_3_is_chosen_by_its_model_type(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "tiny3", formula_weights(CONFIG))
    model = load_model(folder, LoadOptions(torch.device("cpu"), torch.float32))
    assert isinstance(model, MoondreamFamily)


def test_experts_in_float8_stay_so_with_exact_scales(tmp_path: Path) -> None:
    tensors = in_float8(formula_weights(CONFIG))
    loaded = load(write_shards(tmp_path / "tiny3", tensors), device="cpu", dtype=torch.bfloat16)
    moe = loaded.weights.text.blocks[1].mlp
    assert isinstance(moe, MoE) and moe.up.scales_EO is not None
    assert (moe.up.weight_EOI.dtype, moe.router.weight.dtype) == (torch.float8_e4m3fn, torch.bfloat16)
    assert torch.equal(moe.up.scales_EO, tensors["text.blocks.1.moe_quant.up_scale"])


def test_experts_in_float8_equal_their_dequantised_values() -> None:
    tensors = in_float8(formula_weights(CONFIG))
    packed = Moondream.of(CONFIG, tensors, tiny_tokenizer(), name="packed")
    plain = Moondream.of(CONFIG, dequantised(tensors), tiny_tokenizer(), name="plain")
    exact = Moondream.of(CONFIG, formula_weights(CONFIG), tiny_tokenizer(), name="exact")
    found = logits(packed.weights.text)
    torch.testing.assert_close(found, logits(plain.weights.text))
    assert 0 < (found - logits(exact.weights.text)).norm() / found.norm() < 0.05


def test_float8_without_a_scale_is_refused() -> None:
    tensors: dict[str, Any] = in_float8(formula_weights(CONFIG))
    del tensors["text.blocks.2.moe_quant.up_scale"]
    with pytest.raises(CheckpointError, match=r"text.blocks.2.moe_quant.up_scale \(4, 128\) is missing"):
        Moondream.of(CONFIG, tensors, tiny_tokenizer(), name="broken")
    bare = {name: tensor for name, tensor in in_float8(formula_weights(CONFIG)).items() if "moe_quant" not in name}
    with pytest.raises(CheckpointError, match="is in float8 and has no scale"):
        Moondream.of(CONFIG, bare, tiny_tokenizer(), name="bare")


def test_a_scale_without_float8_is_refused() -> None:
    tensors = in_float8(formula_weights(CONFIG))
    tensors["text.blocks.1.mlp.fc1.weight"] = formula_weights(CONFIG)["text.blocks.1.mlp.fc1.weight"]
    with pytest.raises(CheckpointError, match=r"text.blocks.1.mlp.fc1.weight has a scale and is torch.float32"):
        Moondream.of(CONFIG, tensors, tiny_tokenizer(), name="mixed")
