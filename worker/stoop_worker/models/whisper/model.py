"""A loaded Whisper with its tokenizer, and loading one."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from stoop_worker.errors import CheckpointError
from stoop_worker.models.loading.checkpoint import read_checkpoint
from stoop_worker.models.loading.config_file import read_document
from stoop_worker.models.loading.digest import digest_of
from stoop_worker.models.loading.download import Source
from stoop_worker.models.loading.options import LoadOptions
from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.whisper.config import Generation, WhisperConfig, read_generation, read_whisper_config
from stoop_worker.models.whisper.tokenizer_files import read_tokenizer
from stoop_worker.models.whisper.vocabulary import Vocabulary
from stoop_worker.models.whisper.weights import WhisperWeights, check_shapes, present_name

__all__ = ["Whisper", "load_whisper"]


@dataclass(frozen=True, slots=True)
class Whisper:
    """A model ready to run. `digest` identifies it in cache keys; `untrained` marks random weights."""

    config: WhisperConfig
    generation: Generation
    weights: WhisperWeights
    tokenizer: Tokenizer
    vocabulary: Vocabulary
    name: str
    digest: str
    untrained: bool = False

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.weights.tokens.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.weights.tokens.dtype


def load_whisper(found: Source, options: LoadOptions) -> Whisper:
    """Load a model from the files found; raises a `CheckpointError` that names the fault."""
    document = found.document()
    config = read_whisper_config(document)
    generation = read_generation(_generation(found), config)
    tokenizer = read_tokenizer(found.folder)
    if tokenizer.size > config.vocab_size:
        raise CheckpointError(
            f"tokenizer.json has {tokenizer.size} ids, the model {config.vocab_size}: it is another model's"
        )
    vocabulary = Vocabulary.of(tokenizer, generation, config.vocab_size)
    tensors = read_checkpoint(found.weights, present_name, lambda shapes: check_shapes(shapes, config), options)
    name, untrained = found.identity(document)
    digest = digest_of(document, tensors, found.weights, "decoder.layer_norm.weight")
    weights = WhisperWeights.of(tensors, config)
    return Whisper(config, generation, weights, tokenizer, vocabulary, name, digest, untrained)


def _generation(found: Source) -> Mapping[str, object]:
    path = found.folder / "generation_config.json"
    return read_document(path) if path.exists() else {}
