import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from deploy.demo_model import untrained
from stoop_worker.errors import CheckpointError
from stoop_worker.models.moondream.model import load
from tests.support.tiny_model import tiny_moondream, write_checkpoint


def test_a_written_model_loads_as_it_was(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny", dtype=torch.float32)
    loaded, made = load(folder, device="cpu", dtype=torch.float32), tiny_moondream()
    assert (loaded.config, loaded.name, loaded.untrained) == (made.config, "tiny", True)
    assert torch.equal(loaded.weights.text.wte, made.weights.text.wte)
    assert torch.equal(loaded.weights.region.size_decoder.fc2.weight, made.weights.region.size_decoder.fc2.weight)
    assert loaded.tokenizer.tokenize("a red ring") == made.tokenizer.tokenize("a red ring")


def test_a_repository_loads_through_the_download(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny")
    document = json.loads((folder / "config.json").read_text())
    del document["stoop"]
    (folder / "config.json").write_text(json.dumps(document))

    def download(repository: str, revision: str, patterns: Sequence[str]) -> Path:
        assert "*.safetensors" in patterns
        return folder

    loaded = load("someone/tiny", device="cpu", dtype=torch.bfloat16, revision="2025-01-01", download=download)
    assert (loaded.name, loaded.untrained) == ("someone/tiny@2025-01-01", False)
    assert (loaded.dtype, loaded.device) == (torch.bfloat16, torch.device("cpu"))


def test_weights_that_do_not_fit_the_config_are_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny")
    document = json.loads((folder / "config.json").read_text())
    document["text"]["ff_dim"] = 300
    (folder / "config.json").write_text(json.dumps(document))
    with pytest.raises(CheckpointError, match=r"text.blocks.0.mlp.fc1.weight: the config expects \(300, 128\)"):
        load(folder, device="cpu", dtype=torch.float32)


def test_the_digest_is_stable_and_differs_between_models(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny")
    first = load(folder, device="cpu", dtype=torch.float32).digest
    assert load(folder, device="cpu", dtype=torch.float32).digest == first
    document = json.loads((folder / "config.json").read_text())
    document["tokenizer"]["query_double_suffix"] = False
    (folder / "config.json").write_text(json.dumps(document))
    assert load(folder, device="cpu", dtype=torch.float32).digest != first
    assert tiny_moondream().digest != tiny_moondream(torch.bfloat16).digest
    assert tiny_moondream(vision_layers=1).digest != tiny_moondream().digest


def test_a_card_that_is_not_an_object_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny")
    document = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(document | {"stoop": "demo"}))
    with pytest.raises(CheckpointError, match='"stoop" must be an object'):
        load(folder, device="cpu", dtype=torch.float32)


def test_the_untrained_demo_model_loads_and_is_marked_untrained(tmp_path: Path) -> None:
    untrained.main(tmp_path)
    loaded = load(tmp_path, device="cpu", dtype=torch.bfloat16)
    assert (loaded.name, loaded.untrained) == ("demo-untrained", True)
    assert (tmp_path / "model.safetensors").stat().st_size < 6e6
    assert "never trained" in (tmp_path / "README.md").read_text()
