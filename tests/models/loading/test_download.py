"""Finding models without a network: the test supplies the function that downloads."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import huggingface_hub
import huggingface_hub.constants
import pytest
from huggingface_hub.errors import GatedRepoError

from stoop_worker.errors import CheckpointError
from stoop_worker.local.engine import LocalEngine
from stoop_worker.models.catalog import read_catalog
from stoop_worker.models.loading.download import Source, locate, snapshot
from stoop_worker.models.moondream.config import ModelConfig
from stoop_worker.models.moondream.files import mismatch, read_config, read_tokenizer
from tests.support.tiny_model import tiny_config, tiny_tokenizer, write_checkpoint

STARMIE = ("moondream/starmie-v1", "35192e10a54e36eabe0a7cc57a2c1aab371cafc5")


@dataclass
class FakeHub:
    """Repositories as folders, and the requests for them."""

    folders: dict[str, Path]
    asked: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, repository: str, revision: str, patterns: Sequence[str]) -> Path:
        self.asked.append((repository, revision))
        if repository not in self.folders:
            raise CheckpointError(f"cannot download {repository}")
        return self.folders[repository]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "tiny")


def test_a_folder_and_a_file_need_no_download(folder: Path) -> None:
    hub = FakeHub({})
    assert locate(folder, None, hub).weights == (folder / "model.safetensors",)
    lone = locate(str(folder / "model.safetensors"), None, hub)
    assert (lone.weights, lone.name) == ((folder / "model.safetensors",), "model")
    assert hub.asked == []


def test_the_known_repository_is_pinned(folder: Path) -> None:
    hub = FakeHub({"vikhyatk/moondream2": folder})
    found = locate("vikhyatk/moondream2", None, hub)
    assert hub.asked == [("vikhyatk/moondream2", "9a7d4024050840e001defacec2b00727e89149e6")]
    assert found.name == "vikhyatk/moondream2@9a7d4024050840e001defacec2b00727e89149e6"
    locate("vikhyatk/moondream2", "2025-04-14", hub)
    assert hub.asked[-1] == ("vikhyatk/moondream2", "2025-04-14")


@pytest.mark.parametrize("revision", [None, "main"])
def test_another_repository_needs_a_pinned_revision(folder: Path, revision: str | None) -> None:
    with pytest.raises(CheckpointError, match="someone/else: give a revision to pin"):
        locate("someone/else", revision, FakeHub({"someone/else": folder}))


def test_the_error_that_asks_for_a_revision_names_the_page_and_the_licence() -> None:
    with pytest.raises(CheckpointError) as caught:
        locate("someone/else", None, FakeHub({}), licence="Some Community License")
    for part in (f"{huggingface_hub.constants.ENDPOINT}/someone/else", "Some Community License"):
        assert part in str(caught.value)


async def test_a_short_name_without_a_pinned_revision_names_its_licence() -> None:
    entry = next(each for each in read_catalog().entries.values() if each.revision is None)
    with pytest.raises(CheckpointError, match=re.escape(entry.licence)):
        async with LocalEngine(entry.name, device="cpu"):
            pass


@pytest.mark.parametrize("source", ["no-such-folder", "/no/such/folder", Path("no/folder"), "a/b/c"])
def test_a_source_that_exists_nowhere_is_reported(source: str | Path) -> None:
    with pytest.raises(CheckpointError, match=f"there is no model at {source}"):
        locate(source, None, FakeHub({}))


def test_a_folder_needs_its_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*config.json"):
        read_config(locate(folder, None, FakeHub({})))
    assert read_config(locate(folder / "model.safetensors", None, FakeHub({}))) == ({}, ModelConfig())


def released(folder: Path) -> Source:
    return Source(folder, (), "released")


@pytest.mark.parametrize(
    "document",
    [
        {"model_type": "moondream1"},
        {"model_type": "moondream3"},
        {"model_type": "moondream3", "text": {}, "vision": {}, "region": {}, "tokenizer": {"stop_rule": "pair"}},
    ],
)
def test_a_released_model_without_tokenizer_gets_the_right_one(
    document: dict[str, Any], tmp_path: Path, folder: Path
) -> None:
    hub = FakeHub({STARMIE[0]: folder})
    tokenizer = read_tokenizer(released(tmp_path), ModelConfig.of(document), hub)
    assert hub.asked == [STARMIE]
    assert tokenizer.tokenize("a red circle") == tiny_tokenizer().tokenize("a red circle")


def test_a_stale_tokenizer_is_replaced(tmp_path: Path, folder: Path) -> None:
    stale = '{"model": {"type": "BPE", "vocab": {"!": 0}, "merges": []}}'
    (tmp_path / "tokenizer.json").write_text(stale)
    hub = FakeHub({STARMIE[0]: folder})
    assert mismatch(read_tokenizer(released(tmp_path), ModelConfig(), hub), ModelConfig()) is None
    with pytest.raises(CheckpointError) as caught:
        read_tokenizer(released(tmp_path), ModelConfig(), FakeHub({}))
    for part in (
        "tokenizer.json is not this model's tokenizer: id 0 is '!'",
        f"cannot download {STARMIE[0]}",
        "put that",
    ):
        assert part in str(caught.value)
    (folder / "tokenizer.json").write_text(stale)
    with pytest.raises(CheckpointError, match=f"{STARMIE[0]} does not fit"):
        read_tokenizer(released(tmp_path), ModelConfig(), hub)


def test_a_model_of_another_vocabulary_must_bring_its_tokenizer(tmp_path: Path, folder: Path) -> None:
    hub = FakeHub({STARMIE[0]: folder})
    with pytest.raises(CheckpointError, match=r"tokenizer.json is missing. Put the right tokenizer.json there"):
        read_tokenizer(released(tmp_path), tiny_config(), hub)
    assert hub.asked == []


def test_an_unreachable_hub_is_reported_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        CheckpointError, match=r"cannot download someone/else at 2025-01-01 .*check the network and HF_TOKEN"
    ):
        snapshot("someone/else", "2025-01-01", ("config.json",))


def test_a_gated_repository_names_its_licence_and_the_way_in(monkeypatch: pytest.MonkeyPatch) -> None:
    response = httpx.Response(403, request=httpx.Request("GET", "https://hub.example/model"))

    def refuse(*arguments: object, **named: object) -> str:
        raise GatedRepoError("403 Forbidden", response=response)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(CheckpointError) as caught:
        snapshot("someone/else", "2025-01-01", ("config.json",), licence="Some Community License")
    for part in ("someone/else is gated", "Some Community License", "HF_TOKEN"):
        assert part in str(caught.value)
