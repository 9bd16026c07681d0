"""`stoop inspect` on small checkpoints of each family."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from click.testing import Result
from PIL import Image as Pillow
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from benchmarks.engine.full_size import write_folder
from stoop_worker.inspection.command import command
from tests.support import tiny_decoder, tiny_model


def run(*arguments: object) -> Result:
    app = typer.Typer()
    app.command("inspect")(command)
    return CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(app, list(map(str, arguments)))


def facts(*arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.output)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write_checkpoint(tmp_path_factory.mktemp("moondream"))


@pytest.fixture(scope="module")
def folder3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("moondream3")
    write_folder(folder, "tiny3", device="cpu", dtype=torch.bfloat16)
    return folder


def test_parts_and_dtypes_add_up_to_the_files_tensors(folder: Path) -> None:
    found = facts(folder)
    (file,) = folder.glob("*.safetensors")
    tensors = load_file(file)
    expected = {
        "tensors": len(tensors),
        "parameters": sum(tensor.numel() for tensor in tensors.values()),
        "bytes": sum(tensor.nbytes for tensor in tensors.values()),
    }
    assert found["total"] == expected
    for groups in ("parts", "dtypes"):
        for name in expected:
            assert sum(count[name] for count in found[groups].values()) == expected[name]
    assert set(found["parts"]) == {"text", "vision", "region"}
    assert found["active_parameters"] == expected["parameters"]
    assert found["files"] == {file.name: file.stat().st_size}


def test_memory_is_that_of_the_worker_s_dtype_and_context(folder: Path) -> None:
    text = tiny_model.tiny_config().text
    token = 2 * text.n_layers * text.n_heads * text.head_dim
    found = facts(folder, "--dtype", "float32", "--max-context", "100")["memory"]
    assert (found["cache_per_token"], found["context"], found["cache_per_context"]) == (4 * token, 100, 400 * token)
    half = facts(folder)["memory"]
    assert (half["cache_per_token"], half["context"]) == (2 * token, text.max_context)
    assert half["weights"] * 2 == found["weights"]


def test_a_mixture_counts_only_its_chosen_experts_as_active(folder3: Path) -> None:
    found = facts(folder3)
    assert 0 < found["active_parameters"] < found["total"]["parameters"]
    assert found["family"] == "moondream"


def test_a_decoder_has_a_cache_too(tmp_path: Path) -> None:
    folder = tiny_decoder.write_decoder(tmp_path, tiny_decoder.QWEN3)
    found = facts(folder)
    assert found["family"] == "decoder" and found["memory"]["cache_per_token"] > 0


def test_a_prompt_shows_the_temperatures_of_every_layer(folder3: Path, tmp_path: Path) -> None:
    photo = tmp_path / "photo.png"
    Pillow.new("RGB", (80, 60), "red").save(photo)
    layers = facts(folder3, "--prompt", "What is this?", "--image", photo)["layers"]
    assert [each["layer"] for each in layers] == list(range(len(layers))) and layers
    for each in layers:
        assert each["tau_q"]["least"] <= each["tau_q"]["mean"] <= each["tau_q"]["most"]
        # a scale is 1 + a tanh + a sigmoid less a half
        assert each["tau_v"]["least"] >= -0.5 and each["tau_v"]["most"] <= 2.5
        assert each["key_length"]["mean"] > 0 and each["value_length"]["mean"] > 0
    loads = [each["expert_tokens"] for each in layers if each["expert_tokens"]]
    assert loads and len({sum(load) for load in loads}) == 1, "each position chooses the same number of experts"
    without = facts(folder3, "--prompt", "What is this?")["layers"]
    assert without != layers


def test_moondream_2_has_no_temperatures(folder: Path) -> None:
    layers = facts(folder, "--prompt", "What is this?")["layers"]
    assert all(each["tau_q"] is None and each["key_length"]["mean"] > 0 for each in layers)


def test_a_person_reads_a_table(folder3: Path) -> None:
    result = run(folder3, "--prompt", "What is this?")
    assert result.exit_code == 0
    for words in (
        "parameters",
        "of them for each token",
        "bfloat16",
        "keys and values for each token",
        "tau of q",
        "busiest",
    ):
        assert words in result.output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("nowhere",), "there is no model at nowhere"),
        (("--dtype", "int4", "."), "--dtype takes"),
        (("--image", "a.png", "."), "--image needs --prompt"),
    ],
)
def test_wrong_usage_is_one_line(arguments: tuple[str, ...], complaint: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert complaint in result.output and "Traceback" not in result.output


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "moondream1"}')
    (tmp_path / "model.safetensors").write_bytes(b"nothing of the kind")
    result = run(tmp_path)
    assert result.exit_code == 2 and "cannot read" in result.output and "model.safetensors" in result.output


def test_tensors_of_another_model_are_counted_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "moondream1"}')
    save_file({"text.wte": torch.zeros(3, 4)}, tmp_path / "model.safetensors")
    assert facts(tmp_path)["total"] == {"tensors": 1, "parameters": 12, "bytes": 48}
