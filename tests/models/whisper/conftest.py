from collections.abc import Iterator

import pytest
import torch

from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import LoadOptions
from stoop_worker.models.whisper.family import WhisperFamily
from tests.support.tiny_whisper import TinyWhisper, write_whisper


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyWhisper:
    """A Whisper whose windows have 24 states."""
    return write_whisper(tmp_path_factory.mktemp("whisper"), max_source_positions=24, max_target_positions=64)


@pytest.fixture(scope="module")
def family(tiny: TinyWhisper) -> Iterator[WhisperFamily]:
    model = load_model(tiny.folder, LoadOptions(torch.device("cpu"), torch.float64))
    assert isinstance(model, WhisperFamily)
    yield model
