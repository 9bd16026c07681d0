"""Block-wise float8 checkpoints are read as their dequantised selves."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import Chat, Finished, Message, Request, Sampling
from stoop_worker.errors import CheckpointError
from stoop_worker.kernels.block_fp8 import BlockFp8
from stoop_worker.kernels.block_fp8 import dense as as_dense
from stoop_worker.models.decoder.family import DecoderFamily
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.block_fp8 import dequantised
from stoop_worker.models.loading.options import LoadOptions
from tests.engine.micro import drain, ending
from tests.support.tiny_decoder import QWEN3, write_decoder

BLOCK = 128
# 160 rows of the MLP leave a partial block
QUANTISED = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]}


def quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise each block by its own largest value; returns the weight in float8, and the scales."""
    rows, columns = (-(-size // BLOCK) for size in weight.shape)
    q, scales = torch.empty_like(weight, dtype=torch.float8_e4m3fn), torch.empty(rows, columns)
    for row in range(rows):
        for column in range(columns):
            at = slice(row * BLOCK, (row + 1) * BLOCK), slice(column * BLOCK, (column + 1) * BLOCK)
            scales[row, column] = weight[at].abs().max() / 448
            q[at] = (weight[at] / scales[row, column]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return q, scales


def write_quantised(folder: Path, scale_dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Write a tiny Qwen3 in float8; return its dequantised weights."""
    write_decoder(folder, {**QWEN3, "quantization_config": QUANTISED})
    path = folder / "model.safetensors"
    tensors, dense = load_file(path), {}
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        q, scales = quantised(tensors[name])
        scales = scales.to(scale_dtype)
        spread = scales.float().repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
        dense[name] = q.float() * spread[: q.shape[0], : q.shape[1]]
        tensors |= {name: q, f"{name}_scale_inv": scales}
    save_file(tensors, path)
    return dense


def load(folder: Path, dtype: torch.dtype = torch.float32, *, kept: bool = False) -> DecoderFamily:
    model = load_model(folder, LoadOptions(torch.device("cpu"), dtype, block_fp8=kept))
    assert isinstance(model, DecoderFamily)
    return model


@pytest.mark.parametrize("scale_dtype", [torch.float32, torch.bfloat16])
def test_a_float8_checkpoint_is_its_dequantised_self(tmp_path: Path, scale_dtype: torch.dtype) -> None:
    dense = write_quantised(tmp_path, scale_dtype)
    block = load(tmp_path)._model.weights.blocks[1]
    parts = [dense[f"model.layers.1.self_attn.{part}_proj.weight"] for part in "qkv"]
    assert torch.equal(block.qkv, torch.cat(parts))
    assert torch.equal(block.down, dense["model.layers.1.mlp.down_proj.weight"])


def test_weights_that_stay_in_float8_are_joined_where_blocks_are_whole(tmp_path: Path) -> None:
    dense = write_quantised(tmp_path)
    block = load(tmp_path, kept=True)._model.weights.blocks[1]
    assert isinstance(block.qkv, BlockFp8) and isinstance(block.down, BlockFp8)
    assert (block.qkv.values_NC.dtype, block.qkv.side) == (torch.float8_e4m3fn, BLOCK)
    parts = [dense[f"model.layers.1.self_attn.{part}_proj.weight"] for part in "qkv"]
    assert torch.equal(as_dense(block.qkv, torch.float32), torch.cat(parts))
    assert torch.equal(as_dense(block.down, torch.float32), dense["model.layers.1.mlp.down_proj.weight"])
    # a block of 128 rows would have gates and ups
    halves = [dense[f"model.layers.1.mlp.{part}_proj.weight"] for part in ("gate", "up")]
    assert isinstance(block.gate_up, Tensor) and torch.equal(block.gate_up, torch.cat(halves))


@pytest.mark.parametrize("fused", [False, True])
def test_a_model_in_float8_writes_the_same_text_as_its_dequantised_copy(tmp_path: Path, fused: bool) -> None:
    write_quantised(tmp_path)
    written = []
    for kept in (True, False):
        family = DecoderFamily(load(tmp_path, kept=kept)._model, fused=fused)
        chat = Chat((Message("user", ("the cat sat",)),))
        request = Request("a", chat, (), Sampling(temperature=0.0, max_tokens=30))
        end = ending(drain(Engine(family, EngineConfig(max_context=256, max_batch=2)), [request]), "a")
        assert isinstance(end, Finished) and end.usage.output_tokens > 1
        written.append(end.text)
    assert written[0] == written[1]


def test_scales_are_not_rounded_to_the_models_dtype(tmp_path: Path) -> None:
    dense = write_quantised(tmp_path)
    out = load(tmp_path, torch.bfloat16)._model.weights.blocks[0].out
    assert torch.equal(out, dense["model.layers.0.self_attn.o_proj.weight"].bfloat16())


def test_modules_that_the_config_leaves_out_stay_as_they_are(tmp_path: Path) -> None:
    write_quantised(tmp_path)
    path = tmp_path / "config.json"
    left_out = ["lm_head", "model.embed_tokens", "model.layers.0.input_layernorm", "model.layers.1.mlp.gate"]
    quantisation = {**QUANTISED, "modules_to_not_convert": left_out}
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": quantisation}))
    assert load(tmp_path)._model.weights.head.dtype is torch.float32


def test_scales_may_be_exponents() -> None:
    q = torch.ones(3, 5).to(torch.float8_e4m3fn)
    scales = torch.tensor([[127, 128, 126], [125, 127, 127]], dtype=torch.uint8)
    assert dequantised(q, scales, (2, 2)).tolist() == [[1, 1, 2, 2, 0.5], [1, 1, 2, 2, 0.5], [0.25, 0.25, 1, 1, 1]]


def test_a_weight_without_its_scale_is_refused(tmp_path: Path) -> None:
    write_quantised(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.layers.0.self_attn.o_proj.weight_scale_inv"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"float8 tensors without a scale: layers\.0\.self_attn\.o_proj"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quant_method": "awq"}, "quantised by 'awq' cannot be read"),
        ({"quant_method": "fp8"}, "weight_block_size must be two numbers"),
        ({**QUANTISED, "weight_block_size": [64, 64]}, "blocks of"),
        (None, "its config or weight is not quantised"),
        ({**QUANTISED, "modules_to_not_convert": ["lm_head", "model.layers.1.mlp"]}, r"layers\.1\.mlp\.\w+_proj"),
        ({**QUANTISED, "ignored_layers": ["model.layers.0.self_attn.q_proj"]}, r"layers\.0\.self_attn\.q_proj"),
    ],
)
def test_other_quantisation_is_refused(tmp_path: Path, config: object, message: str) -> None:
    write_quantised(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": config}))
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path)
