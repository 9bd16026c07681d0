"""Finding a model's files: on this machine, or in a Hugging Face repository at a pinned revision."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worker.errors import CheckpointError
from worker.model.checkpoint import weight_files
from worker.model.config import ModelConfig, TokenizerConfig
from worker.model.config_file import read_document
from worker.model.tokenizer import Tokenizer

__all__ = ["Download", "Source", "locate", "snapshot"]

Download = Callable[[str, str, Sequence[str]], Path]
"""Takes a repository's id, a revision and patterns of file names; returns the folder that holds them."""

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}|\d{4}-\d{2}-\d{2}")
_PINNED = {"vikhyatk/moondream2": "9a7d4024050840e001defacec2b00727e89149e6"}  # the release of 2025-06-21
_FILES = ("config.json", "tokenizer.json", "*.safetensors", "*.safetensors.index.json")
_TOKENIZER_REPOSITORY = "moondream/starmie-v1"
_TOKENIZER_REVISION = "35192e10a54e36eabe0a7cc57a2c1aab371cafc5"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model's files are; `config_required` unless they are a lone weight file."""

    folder: Path
    weights: tuple[Path, ...]
    name: str
    config_required: bool = True

    def config(self) -> tuple[Mapping[str, Any], ModelConfig]:
        """Read config.json; a lone weight file without one is taken for a released Moondream 2."""
        path = self.folder / "config.json"
        if not self.config_required and not path.exists():
            return {}, ModelConfig()
        document = read_document(path)
        return document, ModelConfig.of(document)

    def tokenizer(self, config: ModelConfig, download: Download) -> Tokenizer:
        """Read tokenizer.json; where it is missing or stale, a released Moondream 2 gets the right one downloaded."""
        path = self.folder / "tokenizer.json"
        if path.exists():
            tokenizer = Tokenizer.read(path)
            complaint = tokenizer.mismatch(config)
            if complaint is None:
                return tokenizer
            complaint = f"{path} is not this model's tokenizer: {complaint}"
        else:
            complaint = f"{path} is missing"
        if config.tokenizer != TokenizerConfig():
            raise CheckpointError(f"{complaint}. Put the right tokenizer.json there")
        return _download_tokenizer(config, download, complaint)


def locate(source: str | Path, revision: str | None, download: Download) -> Source:
    """Find a model's files, downloading them if `source` names a repository."""
    path = Path(source)
    if path.is_dir():
        return Source(path, weight_files(path), path.resolve().name)
    if path.is_file():
        return Source(path.parent, (path,), path.stem, config_required=False)
    if isinstance(source, Path) or not _REPOSITORY.fullmatch(source):
        raise CheckpointError(f"there is no model at {source}: give a folder, a weight file, or a Hugging Face id")
    revision = revision or _PINNED.get(source)
    if revision is None or not _COMMIT.fullmatch(revision):
        raise CheckpointError(f"{source}: give a revision to pin, a commit's 40 hex digits or a dated tag")
    folder = download(source, revision, _FILES)
    return Source(folder, weight_files(folder), f"{source}@{revision}")


def snapshot(repository: str, revision: str, patterns: Sequence[str]) -> Path:
    """Download a repository's files, or find them in the local cache of Hugging Face."""
    import huggingface_hub  # not needed, and slow to import, where the model is a local folder
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(huggingface_hub.snapshot_download(repository, revision=revision, allow_patterns=list(patterns)))
    except (HfHubHTTPError, OSError, ValueError) as error:
        # OSError and ValueError: no network, a full disk, offline with nothing cached, an id that cannot be
        raise CheckpointError(
            f"cannot have {repository} at {revision} from Hugging Face ({type(error).__name__}): check the network and "
            "HF_TOKEN, or download it elsewhere and give its folder"
        ) from error


def _download_tokenizer(config: ModelConfig, download: Download, complaint: str) -> Tokenizer:
    try:
        folder = download(_TOKENIZER_REPOSITORY, _TOKENIZER_REVISION, ("tokenizer.json",))
    except CheckpointError as error:
        raise CheckpointError(f"{complaint}; {error}. Or put that repository's tokenizer.json there") from error
    tokenizer = Tokenizer.read(folder / "tokenizer.json")
    still = tokenizer.mismatch(config)
    if still:
        raise CheckpointError(f"{complaint}; and that of {_TOKENIZER_REPOSITORY} does not fit: {still}")
    return tokenizer
