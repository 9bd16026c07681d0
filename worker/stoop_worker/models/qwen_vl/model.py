"""Loads a Qwen3-VL: the decoder and the vision encoder."""

from collections.abc import Mapping
from typing import NamedTuple

from stoop_worker.models.decoder.model import Decoder, read_language
from stoop_worker.models.decoder.weights import DecoderWeights, check_shapes
from stoop_worker.models.loading.block_fp8 import check_exceptions, dense_shapes, is_scale, read_block, read_quantised
from stoop_worker.models.loading.checkpoint import read_checkpoint
from stoop_worker.models.loading.config_file import read_document
from stoop_worker.models.loading.digest import digest_of
from stoop_worker.models.loading.download import Source
from stoop_worker.models.loading.options import LoadOptions
from stoop_worker.models.qwen_vl.config import QwenVLConfig, read_config
from stoop_worker.models.qwen_vl.weights import VisionWeights, present_name, split_shapes

__all__ = ["QwenVL", "load_qwen_vl"]


class QwenVL(NamedTuple):
    """A model ready to run."""

    config: QwenVLConfig
    decoder: Decoder
    vision: VisionWeights


def load_qwen_vl(found: Source, options: LoadOptions) -> QwenVL:
    """Load a model from the files found; raises a `CheckpointError` that names the fault."""
    document = found.document()
    path = found.folder / "preprocessor_config.json"
    config = read_config(document, read_document(path) if path.exists() else {})
    language = read_language(found, document.get("text_config", {}), config.text.vocab_size)

    block = read_block(document)

    def check(shapes: Mapping[str, tuple[int, ...]]) -> None:
        check_exceptions(document, shapes)
        check_shapes(split_shapes(dense_shapes(shapes, block), config), config.text)

    tensors = read_checkpoint(found.weights, present_name, check, options, exact=is_scale)
    digest = digest_of(document, tensors, found.weights, "norm.weight")
    tensors, quantised = read_quantised(tensors, block, options)
    vision = VisionWeights.of(tensors, config.vision)
    name, untrained = found.identity(document)
    decoder = Decoder(
        config=config.text,
        weights=DecoderWeights.of(tensors, config.text, quantised),
        language=language,
        name=name,
        digest=digest,
        untrained=untrained,
    )
    return QwenVL(config, decoder, vision)
