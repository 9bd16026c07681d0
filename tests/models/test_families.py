import json
from pathlib import Path

import pytest
import torch

from stoop_worker.errors import CheckpointError
from stoop_worker.models.families import FAMILIES, load_model
from stoop_worker.models.loading.options import LoadOptions
from stoop_worker.models.moondream.family import MoondreamFamily
from tests.support.tiny_model import write_checkpoint

OPTIONS = LoadOptions(torch.device("cpu"), torch.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "tiny")


def rewrite(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    document = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: value for name, value in document.items() if value is not None}))


@pytest.mark.parametrize("changes", [{}, {"model_type": None}, {"model_type": None, "architectures": ["moondream1"]}])
def test_the_architecture_chooses_the_family(folder: Path, changes: dict[str, object]) -> None:
    rewrite(folder, **changes)
    model = load_model(folder, OPTIONS)
    assert isinstance(model, MoondreamFamily)
    assert (model.name, model.untrained, model.dtype) == ("tiny", True, torch.float32)


def test_an_architecture_that_no_family_runs_is_refused_with_those_that_are_known(folder: Path) -> None:
    rewrite(folder, model_type="gpt2", architectures=["GPT2LMHeadModel"])
    known = ", ".join(sorted(FAMILIES))
    with pytest.raises(CheckpointError, match=f"no family runs a model of gpt2 or GPT2LMHeadModel; .*runs {known}"):
        load_model(folder, OPTIONS)


def test_a_family_can_be_loaded_with_float8_linears(folder: Path) -> None:
    model = load_model(folder, LoadOptions(torch.device("cpu"), torch.float32, fp8_linears=True))
    assert isinstance(model, MoondreamFamily)
