"""Finds a model's files on this machine, or in a Hugging Face repository at a pinned revision."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoop_worker.errors import CheckpointError
from stoop_worker.models.loading.checkpoint import weight_files
from stoop_worker.models.loading.config_file import read_document

__all__ = ["Download", "Source", "hub_errors", "locate", "snapshot"]

Download = Callable[[str, str, Sequence[str]], Path]
"""Takes a repository's id, a revision and patterns of file names; returns the folder that holds them."""

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}|\d{4}-\d{2}-\d{2}")
_PINNED = {"vikhyatk/moondream2": "9a7d4024050840e001defacec2b00727e89149e6"}  # the release of 2025-06-21
_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "config_sentence_transformers.json",
    "modules.json",
    "*_Pooling/config.json",
    "*_Dense/config.json",
    "sparse_linear.pt",
    "colbert_linear.pt",
)
_PICKLED = ("pytorch_model.bin",)  # much larger than it need be where the same weights are safetensors too


@dataclass(frozen=True, slots=True)
class Source:
    """The files of a model; `config_required` is False only for a lone weight file."""

    folder: Path
    weights: tuple[Path, ...]
    name: str
    config_required: bool = True

    def document(self) -> Mapping[str, Any]:
        """Read config.json; the document is empty for a lone weight file without one."""
        path = self.folder / "config.json"
        return {} if not self.config_required and not path.exists() else read_document(path)

    def identity(self, document: Mapping[str, Any]) -> tuple[str, bool]:
        """Return the model's name, and whether its weights are made up, from its config.json.

        Both may be in the section `stoop`; without it, the model has the name of its files, and is trained.
        """
        card = document.get("stoop", {})
        if not isinstance(card, Mapping):
            raise CheckpointError('config: "stoop" must be an object')
        return str(card.get("name", self.name)), bool(card.get("untrained", False))


def locate(source: str | Path, revision: str | None, download: Download, *, licence: str | None = None) -> Source:
    """Find a model's files, downloading them if `source` names a repository.

    The `licence` of the weights, if it is known, is named in the error that asks for a revision.
    """
    path = Path(source)
    if path.is_dir():
        return Source(path, weight_files(path), path.resolve().name)
    if path.is_file():
        return Source(path.parent, (path,), path.stem, config_required=False)
    if isinstance(source, Path) or not _REPOSITORY.fullmatch(source):
        raise CheckpointError(
            f"there is no model at {source}: give a folder, a weight file, a Hugging Face id such as "
            "vikhyatk/moondream2, or a short name such as moondream2"
        )
    revision = revision or _PINNED.get(source)
    if revision is None or not _COMMIT.fullmatch(revision):
        from huggingface_hub.constants import ENDPOINT

        terms = f". The licence of these weights: {licence}" if licence else ""
        raise CheckpointError(
            f"{source}: give a revision to pin, a commit's 40 hex digits or a dated tag; the history of its files on"
            f" {ENDPOINT}/{source} lists the commits{terms}"
        )
    folder = download(source, revision, _FILES)
    if not any(folder.glob("*.safetensors")):
        folder = download(source, revision, (*_FILES, *_PICKLED))
    return Source(folder, weight_files(folder), f"{source}@{revision}")


def snapshot(repository: str, revision: str, patterns: Sequence[str], *, licence: str | None = None) -> Path:
    """Download a repository's files, or find them in the local cache of Hugging Face.

    The `licence` of the weights is named in the error if their owner has not yet let this user in.
    """
    import huggingface_hub  # slow to import, and not needed for a local folder

    with hub_errors(repository, revision, licence=licence):
        return Path(huggingface_hub.snapshot_download(repository, revision=revision, allow_patterns=list(patterns)))


@contextmanager
def hub_errors(repository: str, revision: str, *, licence: str | None = None) -> Iterator[None]:
    """Raise a `CheckpointError` with the remedy in place of an error of Hugging Face or of the network."""
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError

    try:
        yield
    except GatedRepoError as error:
        terms = f" ({licence})" if licence else ""
        raise CheckpointError(
            f"{repository} is gated: accept its licence{terms} on its page at Hugging Face, set HF_TOKEN to a token of "
            "that account, and start again"
        ) from error
    except (HfHubHTTPError, OSError, ValueError) as error:
        # OSError and ValueError: no network, a full disk, offline with nothing cached, an impossible id
        raise CheckpointError(
            f"cannot download {repository} at {revision} from Hugging Face ({type(error).__name__}): check the network"
            " and HF_TOKEN, or download it elsewhere and give its folder"
        ) from error
