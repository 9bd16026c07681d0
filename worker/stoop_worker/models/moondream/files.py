"""Reads the files next to the weights: the configuration and the tokenizer."""

import re
from collections.abc import Mapping
from typing import Any

from stoop_worker.errors import CheckpointError
from stoop_worker.models.loading.download import Download, Source
from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.moondream.config import ModelConfig
from stoop_worker.models.moondream.config_parts import TokenizerConfig

__all__ = ["mismatch", "read_config", "read_tokenizer"]

_REPOSITORY = "moondream/starmie-v1"
_REVISION = "35192e10a54e36eabe0a7cc57a2c1aab371cafc5"

_END = "<|endoftext|>"
_CONTROL = re.compile(r"<\|(endoftext|md_reserved_\d+)\|>")


def read_config(found: Source) -> tuple[Mapping[str, Any], ModelConfig]:
    """Read config.json; a lone weight file without one counts as a released Moondream 2."""
    document = found.document()
    return document, ModelConfig.of(document) if document else ModelConfig()


def read_tokenizer(found: Source, config: ModelConfig, download: Download) -> Tokenizer:
    """Read tokenizer.json; for the vocabulary of the releases the right one is downloaded if it is missing or stale."""
    path = found.folder / "tokenizer.json"
    if path.exists():
        tokenizer = Tokenizer.read(path)
        complaint = mismatch(tokenizer, config)
        if complaint is None:
            return tokenizer
        complaint = f"{path} is not this model's tokenizer: {complaint}"
    else:
        complaint = f"{path} is missing"
    if config.tokenizer.vocabulary != TokenizerConfig().vocabulary:
        raise CheckpointError(f"{complaint}. Put the right tokenizer.json there")
    return _download_tokenizer(config, download, complaint)


def mismatch(tokenizer: Tokenizer, config: ModelConfig) -> str | None:
    """Return the reason that the tokenizer does not match the config, or None.

    The tokenizer.json in the released Moondream 2 repository has an older vocabulary.
    """
    ids = config.tokenizer
    for end in {ids.bos_id, ids.eos_id}:
        if tokenizer.spelling(end) != _END:
            return f"id {end} is {tokenizer.spelling(end)!r}, not {_END!r}"
    for control in ids.control_ids:
        spelling = tokenizer.spelling(control) or ""
        if spelling == _END or not _CONTROL.fullmatch(spelling):
            return f"id {control} is {spelling!r}, not a control token"
    if tokenizer.size > config.text.vocab_size:
        return f"it has {tokenizer.size} ids, the model {config.text.vocab_size}"
    return None


def _download_tokenizer(config: ModelConfig, download: Download, complaint: str) -> Tokenizer:
    try:
        folder = download(_REPOSITORY, _REVISION, ("tokenizer.json",))
    except CheckpointError as error:
        raise CheckpointError(f"{complaint}; {error}. Or put that repository's tokenizer.json there") from error
    tokenizer = Tokenizer.read(folder / "tokenizer.json")
    still = mismatch(tokenizer, config)
    if still:
        raise CheckpointError(f"{complaint}; and that of {_REPOSITORY} does not fit: {still}")
    return tokenizer
