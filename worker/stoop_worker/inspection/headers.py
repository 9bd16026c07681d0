"""Fetches a repository's small files and the headers of its weights; the weights stay where they are."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stoop_worker.errors import CheckpointError
from stoop_worker.models.loading.download import Download, hub_errors, snapshot

__all__ = ["header_download"]

_WEIGHTS = (".safetensors", ".bin", ".pt")


@contextmanager
def header_download(licence: str | None = None) -> Iterator[Download]:
    """Yield a `Download` for names, shapes and dtypes alone; its files are removed afterwards.

    Each weight file is a file of the same length with the same tensors in its header, which takes no room on the disk.
    The `licence` of the weights is named in the error if their owner has not yet let this user in.
    """
    with TemporaryDirectory(prefix="stoop-inspect-") as folder:
        yield partial(_fetch, folder=Path(folder), licence=licence)


def _fetch(repository: str, revision: str, patterns: Sequence[str], *, folder: Path, licence: str | None) -> Path:
    small = snapshot(repository, revision, [each for each in patterns if not each.endswith(_WEIGHTS)], licence=licence)
    try:
        sizes = _sizes(repository, revision)
    except CheckpointError:
        if any(small.glob("*.safetensors")):
            return small  # without a network, the weights that were downloaded before
        raise
    weights = [name for name in sizes if name.endswith(".safetensors")]
    if not weights:
        raise CheckpointError(
            f"{repository} has no safetensors, whose headers can be read alone ({_pickled(sizes)}): download it, and "
            "give its folder"
        )
    for path in small.glob("*.json"):
        shutil.copyfile(path, folder / path.name)
    for name in weights:
        _write(folder / name, _tensors(repository, revision, name), sizes[name])
    return folder


def _sizes(repository: str, revision: str) -> dict[str, int]:
    """Return the bytes of each file of a repository that is in no folder."""
    import huggingface_hub  # slow to import

    with hub_errors(repository, revision):
        listed = huggingface_hub.HfApi().model_info(repository, revision=revision, files_metadata=True)
    return {each.rfilename: each.size or 0 for each in listed.siblings or [] if "/" not in each.rfilename}


def _tensors(repository: str, revision: str, name: str) -> Mapping[str, Any]:
    """Return the tensors of a weight file; it is asked for ranges of bytes."""
    import huggingface_hub
    from huggingface_hub.errors import SafetensorsParsingError

    try:
        with hub_errors(repository, revision):
            return huggingface_hub.HfApi().parse_safetensors_file_metadata(repository, name, revision=revision).tensors
    except SafetensorsParsingError as error:
        raise CheckpointError(f"cannot read {name} of {repository}: {error}") from error


def _write(path: Path, tensors: Mapping[str, Any], size: int) -> None:
    """Write a weight file of `size` bytes without its data."""
    header = {
        name: {"dtype": each.dtype, "shape": each.shape, "data_offsets": each.data_offsets}
        for name, each in tensors.items()
    }
    data = max((each.data_offsets[1] for each in tensors.values()), default=0)
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded = encoded.ljust(size - data - 8)  # as long as the original, whose metadata is left out
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        file.truncate(8 + len(encoded) + data)


def _pickled(sizes: Mapping[str, int]) -> str:
    found = [f"{name}, {size / 1e9:.2f} GB" for name, size in sizes.items() if name.endswith(_WEIGHTS)]
    return "; ".join(found) or "no weight files"
