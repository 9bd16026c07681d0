"""Reads the tokenizer of a Whisper: tokenizer.json, or the older files that some fine-tunes have alone."""

import json
from pathlib import Path
from typing import Any

import tokenizers

from stoop_worker.errors import CheckpointError
from stoop_worker.models.loading.tokenizer import Tokenizer

__all__ = ["read_tokenizer"]


def read_tokenizer(folder: Path) -> Tokenizer:
    """Read tokenizer.json; without it vocab.json, merges.txt and added_tokens.json. Raises `CheckpointError`."""
    whole = folder / "tokenizer.json"
    return Tokenizer.read(whole) if whole.exists() else Tokenizer(_joined(folder))


def _joined(folder: Path) -> str:
    """Return the contents of a tokenizer.json made of the older files."""
    for name in ("vocab.json", "merges.txt"):
        if not (folder / name).exists():
            raise CheckpointError(
                f"{folder} has no tokenizer.json and no {name}: put those of the model there from which it was tuned"
            )
    vocabulary = _read(folder / "vocab.json")
    added = _read(folder / "added_tokens.json") if (folder / "added_tokens.json").exists() else {}
    try:
        # a merge may begin with #, as the version in the first line does
        first, *lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
        pairs = (line.split() for line in ([] if first.startswith("#version") else [first]) + lines if line)
        merges = [(left, right) for left, right in pairs]
        backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    except Exception as error:  # the library raises nothing narrower
        raise CheckpointError(f"vocab.json and merges.txt do not fit each other: {error}") from error
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    spellings = sorted(added, key=added.__getitem__)
    backend.add_tokens([tokenizers.AddedToken(spelling, normalized=False) for spelling in spellings])
    for spelling in spellings:
        if backend.token_to_id(spelling) != added[spelling]:
            raise CheckpointError(f"added_tokens.json gives {spelling} the id {added[spelling]}, after a gap")
    return str(backend.to_str())


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(number, int) for number in found.values()):
        raise CheckpointError(f"{path} must map spellings to ids")
    return found
