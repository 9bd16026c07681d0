"""A loaded decoder with its tokenizer and template, and loading one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from stoop_worker.engine.grammars.grammars import Grammars
from stoop_worker.errors import CheckpointError
from stoop_worker.models.decoder.config import DecoderConfig, read_decoder_config
from stoop_worker.models.decoder.weights import DecoderWeights, check_shapes, present_name
from stoop_worker.models.loading.block_fp8 import check_exceptions, dense_shapes, is_scale, read_block, read_quantised
from stoop_worker.models.loading.chat_prompt import ChatPrompt
from stoop_worker.models.loading.chat_template import ChatTemplate
from stoop_worker.models.loading.checkpoint import read_checkpoint
from stoop_worker.models.loading.digest import digest_of
from stoop_worker.models.loading.download import Source
from stoop_worker.models.loading.generation import read_ends, read_generation, read_sampling
from stoop_worker.models.loading.options import LoadOptions
from stoop_worker.models.loading.tokenizer import Tokenizer

__all__ = ["Decoder", "Language", "load_decoder", "read_language"]


@dataclass(frozen=True, slots=True)
class Language:
    """The parts between text and ids: the tokenizer, the template, the ids that end a turn, and the grammars.

    `sampling` are the makers' defaults for temperature, top_p and top_k.
    """

    tokenizer: Tokenizer
    prompt: ChatPrompt
    ends: tuple[int, ...]
    sampling: Mapping[str, float]
    grammars: Grammars


@dataclass(frozen=True, slots=True)
class Decoder:
    """A model ready to run. `digest` identifies it in cache keys; `untrained` marks random weights."""

    config: DecoderConfig
    weights: DecoderWeights
    language: Language
    name: str
    digest: str
    untrained: bool = False

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.weights.embeddings.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.weights.embeddings.dtype


def load_decoder(found: Source, options: LoadOptions) -> Decoder:
    """Load a model from the files found; raises a `CheckpointError` that names the fault."""
    document = found.document()
    config = read_decoder_config(document)
    language = read_language(found, document, config.vocab_size)
    block = read_block(document)

    def check(shapes: Mapping[str, tuple[int, ...]]) -> None:
        check_exceptions(document, shapes)
        check_shapes(dense_shapes(shapes, block), config)

    tensors = read_checkpoint(found.weights, present_name, check, options, exact=is_scale)
    name, untrained = found.identity(document)
    digest = digest_of(document, tensors, found.weights, "norm.weight")
    tensors, quantised = read_quantised(tensors, block, options)
    return Decoder(
        config=config,
        weights=DecoderWeights.of(tensors, config, quantised),
        language=language,
        name=name,
        digest=digest,
        untrained=untrained,
    )


def read_language(found: Source, document: Mapping[str, Any], vocab_size: int) -> Language:
    """Read the tokenizer, the chat template and generation_config.json; raises `CheckpointError`."""
    tokenizer = Tokenizer.read(found.folder / "tokenizer.json")
    if tokenizer.size > vocab_size:
        raise CheckpointError(f"tokenizer.json has {tokenizer.size} ids, the model {vocab_size}: it is another model's")
    prompt = ChatPrompt(ChatTemplate.read(found.folder), tokenizer)
    generation = read_generation(found.folder)
    ends = read_ends(generation, document, vocab_size)
    grammars = Grammars(tokenizer.document, size=vocab_size, ends=ends)
    return Language(tokenizer, prompt, ends, read_sampling(generation), grammars)
