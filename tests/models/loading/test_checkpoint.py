"""Every scheme a checkpoint comes in, written small and read back."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from stoop_worker.errors import CheckpointError
from stoop_worker.models.loading import checkpoint
from stoop_worker.models.loading.checkpoint import read_checkpoint, weight_files
from stoop_worker.models.loading.options import LoadOptions
from stoop_worker.models.moondream.names import present_name
from stoop_worker.models.moondream.shapes import check_shapes
from tests.support.tiny_model import formula_weights, tiny_config

CONFIG = tiny_config()
CPU = torch.device("cpu")
Tensors = dict[str, Tensor]

OLDER = (
    (r"^vision\.patch_emb\.", "vision_encoder.encoder.model.visual.patch_embed.linear."),
    (r"^vision\.pos_emb$", "vision_encoder.encoder.model.visual.pos_embed"),
    (r"^vision\.blocks\.(\d+)\.ln([12])\.", r"vision_encoder.encoder.model.visual.blocks.\1.norm\2."),
    (r"^vision\.blocks\.", "vision_encoder.encoder.model.visual.blocks."),
    (r"^vision\.post_ln\.", "vision_encoder.encoder.model.visual.norm."),
    (r"^vision\.proj_mlp\.", "vision_encoder.projection.mlp."),
    (r"^text\.wte$", "text_model.transformer.embd.wte.weight"),
    (r"^text\.blocks\.(\d+)\.attn\.qkv\.", r"text_model.transformer.h.\1.mixer.Wqkv."),
    (r"^text\.blocks\.(\d+)\.attn\.proj\.", r"text_model.transformer.h.\1.mixer.out_proj."),
    (r"^text\.blocks\.", "text_model.transformer.h."),
    (r"^text\.post_ln\.", "text_model.lm_head.ln."),
    (r"^text\.lm_head\.", "text_model.lm_head.linear."),
    (r"^region\.coord_features$", "region_model.coordinate_features.weight"),
    (r"^region\.size_features$", "region_model.size_features.weight"),
    (r"^region\.coord_(encoder|decoder)\.", r"region_model.coordinate_\1."),
    (r"^region\.size_", "region_model.size_"),
)


def older_name(name: str) -> str:
    for new, old in OLDER:
        if re.search(new, name):
            return re.sub(new, old, name)
    raise AssertionError(name)


def older(tensors: Tensors) -> Tensors:
    return {
        older_name(name): (tensor.t().contiguous() if name.endswith("_features") else tensor)
        for name, tensor in tensors.items()
    }


def compiled(tensors: Tensors) -> Tensors:
    return {
        name.replace("mixer.", "mixer._orig_mod.").replace("text_model.", "text_model._orig_mod."): tensor
        for name, tensor in older(tensors).items()
    }


SCHEMES: dict[str, Callable[[Tensors], Tensors]] = {
    "released": lambda tensors: tensors,
    "prefixed": lambda tensors: {f"model.{name}": tensor for name, tensor in tensors.items()},
    "compiled": lambda tensors: {f"_orig_mod.{name}": tensor for name, tensor in tensors.items()},
    "older": older,
    "older, compiled": compiled,
}


@pytest.fixture(scope="module")
def tensors() -> Tensors:
    return formula_weights(CONFIG)


def read(folder: Path, dtype: torch.dtype = torch.float32) -> Tensors:
    return read_checkpoint(
        weight_files(folder), present_name, lambda shapes: check_shapes(shapes, CONFIG), LoadOptions(CPU, dtype)
    )


def assert_equal(found: Tensors, expected: Tensors) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_every_scheme_gives_the_same_tensors(tmp_path: Path, tensors: Tensors, scheme: str, suffix: str) -> None:
    stored = SCHEMES[scheme](tensors)
    if suffix == "pt":
        torch.save(stored, tmp_path / "weights.pt")
    else:
        save_file(stored, tmp_path / "model.safetensors")
    assert_equal(read(tmp_path), tensors)


def write_shards(folder: Path, tensors: Tensors) -> None:
    names = list(tensors)
    weight_map = {}
    for shard, part in enumerate((names[::2], names[1::2])):
        file = f"model-{shard + 1:05}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_shards_are_found_by_their_index(tmp_path: Path, tensors: Tensors) -> None:
    write_shards(tmp_path, tensors)
    assert_equal(read(tmp_path), tensors)


def test_a_missing_shard_is_named(tmp_path: Path, tensors: Tensors) -> None:
    write_shards(tmp_path, tensors)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"names model-00002-of-00002.safetensors, which does not exist"):
        weight_files(tmp_path)


def test_an_index_cannot_reach_outside_its_folder(tmp_path: Path, tensors: Tensors) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    save_file(tensors, tmp_path / "other.safetensors")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"text.wte": "../other.safetensors"}}')
    with pytest.raises(CheckpointError, match="which does not exist"):
        weight_files(folder)


@pytest.mark.parametrize("contents", ["{", "[]", "{}", '{"weight_map": []}'])
def test_a_broken_index_is_named(tmp_path: Path, contents: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(contents)
    with pytest.raises(CheckpointError, match="is not an index of shards"):
        weight_files(tmp_path)


def test_values_become_the_dtype_that_is_asked_for(tmp_path: Path, tensors: Tensors) -> None:
    save_file({name: tensor.bfloat16() for name, tensor in tensors.items()}, tmp_path / "model.safetensors")
    found = read(tmp_path, torch.float64)
    assert_equal(found, {name: tensor.bfloat16().double() for name, tensor in tensors.items()})


@pytest.mark.parametrize(
    "buffer", ["text.freqs_cis", "model.text.attn_mask", "text.blocks.0.kv_cache.k_cache", "text.rotary_emb.inv_freq"]
)
def test_buffers_are_passed_over(tmp_path: Path, tensors: Tensors, buffer: str) -> None:
    save_file(tensors | {buffer: torch.zeros(3)}, tmp_path / "model.safetensors")
    assert_equal(read(tmp_path), tensors)


def test_a_wrong_shape_is_found_before_anything_is_read(tmp_path: Path, tensors: Tensors) -> None:
    save_file(older(tensors | {"region.size_features": torch.zeros(16, 2)}), tmp_path / "model.safetensors")
    with pytest.raises(
        CheckpointError, match=r"region.size_features: the config expects \(2, 16\), the checkpoint has \(16, 2\)"
    ):
        read(tmp_path)


def test_the_same_tensor_under_two_names_is_an_error(tmp_path: Path, tensors: Tensors) -> None:
    save_file(tensors | {"model.text.wte": torch.zeros(512, 128)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"text.wte a second time"):
        read(tmp_path)


def test_int4_tensors_are_not_taken_for_weights(tmp_path: Path, tensors: Tensors) -> None:
    stored = dict(tensors)
    stored["text.blocks.0.attn.qkv.weight.packed"] = stored.pop("text.blocks.0.attn.qkv.weight").to(torch.uint8)
    save_file(stored, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"int4.*bfloat16"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "weights.pt"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"not weights")
    with pytest.raises(CheckpointError, match=f"cannot read .*{name}"):
        read(tmp_path)


def test_a_pt_file_that_would_run_code_is_refused(tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    class Malice:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (ran,)  # type: ignore[return-value]

    torch.save({"text.wte": Malice()}, tmp_path / "weights.pt")
    with pytest.raises(CheckpointError, match=r"cannot read"):
        read(tmp_path)
    assert not ran.exists()


def test_a_pt_file_of_something_else_is_refused(tmp_path: Path) -> None:
    torch.save({"state": {"text.wte": torch.zeros(1)}}, tmp_path / "weights.pt")
    with pytest.raises(CheckpointError, match="must hold a flat dictionary of tensors"):
        read(tmp_path)


def test_a_folder_without_one_clear_file_of_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no weights"):
        weight_files(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.safetensors").touch()
    with pytest.raises(CheckpointError, match="has 2 weight files and no "):
        weight_files(tmp_path)


def test_float8_weights_and_whole_numbers_keep_their_dtype(tmp_path: Path) -> None:
    stored = {
        "weight": torch.ones(4, 4).to(torch.float8_e4m3fn),
        "scale": torch.ones(1, dtype=torch.bfloat16),
        "ids": torch.arange(3),
    }
    save_file(stored, tmp_path / "model.safetensors")
    found = read_checkpoint(
        weight_files(tmp_path), lambda name: (name, False), lambda shapes: None, LoadOptions(CPU, torch.float32)
    )
    assert (found["weight"].dtype, found["ids"].dtype) == (torch.float8_e4m3fn, torch.int64)
    assert found["scale"].dtype == torch.float32


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_progress_is_reported_after_every_tensor(tmp_path: Path, tensors: Tensors, suffix: str) -> None:
    path = tmp_path / f"model.{suffix}"
    save_file(tensors, path) if suffix == "safetensors" else torch.save(tensors, path)
    progress: list[tuple[int, int]] = []
    options = LoadOptions(CPU, torch.float32, on_read=lambda *news: progress.append(news))
    read_checkpoint((path,), present_name, lambda shapes: None, options)
    sizes = [tensor.nbytes for tensor in tensors.values()]
    assert len(progress) == len(sizes)
    assert [read for read, _ in progress] == sorted(read for read, _ in progress)
    assert progress[-1] == (sum(sizes), path.stat().st_size)


def test_a_file_mapped_again_between_tensors_gives_the_same_values(
    tmp_path: Path, tensors: Tensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "_MAPPED_BYTES", 0)
    save_file(tensors, tmp_path / "model.safetensors")
    assert_equal(read(tmp_path), tensors)


def test_a_pt_file_of_the_oldest_format_is_read(tmp_path: Path, tensors: Tensors) -> None:
    torch.save(tensors, tmp_path / "weights.pt", _use_new_zipfile_serialization=False)
    assert_equal(read(tmp_path), tensors)
