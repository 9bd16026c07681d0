"""Checks that a configuration describes a possible model."""

from collections.abc import Iterator
from dataclasses import fields, replace

from stoop_worker.errors import CheckpointError
from stoop_worker.images import RESIZERS
from stoop_worker.models.moondream.config_parts import RegionConfig, TextConfig, TokenizerConfig, VisionConfig

__all__ = ["check"]


def check(text: TextConfig, vision: VisionConfig, region: RegionConfig, tokenizer: TokenizerConfig) -> None:
    """Raise a `CheckpointError` that names the first impossible value."""
    for complaint in (
        *_sizes(text, vision, region),
        *_text(text),
        *_vision(vision),
        *_region(region),
        *_ids(tokenizer, text.vocab_size),
        *_wants(
            (vision.proj_out_dim == text.dim, "vision.proj_out_dim must equal text.dim"),
            (region.dim == text.dim, "region.dim must equal text.dim"),
            (
                text.prefix_attn == vision.patches + 1,
                f"text.prefix_attn must be {vision.patches + 1}: one token, then a crop's patches",
            ),
            (
                len(tokenizer.templates.query.suffix) > 0,
                "tokenizer.templates.query.suffix is empty: after reasoning, no answer would begin",
            ),
            (
                tokenizer.stop_rule in ("token", "pair", "pair_after_first"),
                "tokenizer.stop_rule must be token, pair or pair_after_first",
            ),
        ),
    ):
        raise CheckpointError(f"config: {complaint}")


def _wants(*rules: tuple[bool, str]) -> Iterator[str]:
    return (complaint for holds, complaint in rules if not holds)


def _sizes(text: TextConfig, vision: VisionConfig, region: RegionConfig) -> Iterator[str]:
    for section, part in (("text", text), ("vision", vision), ("region", region)):
        yield from _positive(section, part)
        if getattr(part, "group_size", None) is not None:
            yield f"{section}.group_size is set: int4 checkpoints are not read, take the bfloat16 one"


def _positive(section: str, part: object) -> Iterator[str]:
    for size in fields(part):  # type: ignore[arg-type]
        found = getattr(part, size.name)
        if isinstance(found, int | float) and found <= 0:
            yield f"{section}.{size.name} is {found}: it must be positive"


def _text(text: TextConfig) -> Iterator[str]:
    yield from _experts(text)
    if text.tau is not None:
        yield from _wants(
            (text.tau.gelu in ("erf", "tanh"), "text.tau.gelu must be erf or tanh"),
            (
                text.tau.position_dtype in ("float32", "bfloat16"),
                "text.tau.position_dtype must be float32 or bfloat16",
            ),
        )
    yield from _wants(
        (text.dim % text.n_heads == 0, "text.dim must be a multiple of text.n_heads"),
        (text.dim % (4 * text.n_heads) == 0, "text.dim / text.n_heads must be a multiple of 4"),
        (text.n_kv_heads == text.n_heads, "text.n_kv_heads must equal text.n_heads: grouped heads are not read"),
        (text.max_context > text.prefix_attn, "text.max_context must be over text.prefix_attn"),
    )


def _experts(text: TextConfig) -> Iterator[str]:
    if text.moe is None:
        return
    yield from _positive("text.moe", replace(text.moe, start_layer=1))
    yield from _wants(
        (0 <= text.moe.start_layer < text.n_layers, "text.moe.start_layer must be one of the layers"),
        (
            text.moe.experts_per_token <= text.moe.num_experts,
            "text.moe.experts_per_token must not exceed text.moe.num_experts",
        ),
    )


def _vision(vision: VisionConfig) -> Iterator[str]:
    return _wants(
        (vision.in_channels == 3, "vision.in_channels must be 3"),
        (vision.resize in RESIZERS, f"vision.resize must be {' or '.join(RESIZERS)}"),
        (vision.normalise in ("stepwise", "once"), "vision.normalise must be stepwise or once"),
        (vision.enc_dim % vision.enc_n_heads == 0, "vision.enc_dim must be a multiple of vision.enc_n_heads"),
        (vision.crop_size % vision.enc_patch_size == 0, "vision.crop_size must be a multiple of vision.enc_patch_size"),
        (vision.grid > 2 * vision.overlap_margin, "vision.overlap_margin leaves nothing of a crop"),
    )


def _region(region: RegionConfig) -> Iterator[str]:
    return _wants(
        (region.coord_feat_dim % 2 == 0, "region.coord_feat_dim must be even"),
        (region.size_feat_dim % 2 == 0, "region.size_feat_dim must be even"),
        (region.norm_input in ("raw", "post_ln"), "region.norm_input must be raw or post_ln"),
        (region.size_out_dim % 2 == 0 and region.size_out_dim > 2, "region.size_out_dim must be even, and over 2"),
    )


def _ids(tokenizer: TokenizerConfig, vocab_size: int) -> Iterator[str]:
    named: dict[str, tuple[int, ...]] = {
        known.name: (getattr(tokenizer, known.name),) for known in fields(tokenizer) if known.name.endswith("_id")
    }
    templates = tokenizer.templates
    named |= {f"templates.caption.{length}": ids for length, ids in templates.caption.items()}
    for skill in ("query", "detect", "point"):
        affixes = getattr(templates, skill)
        named[f"templates.{skill}"] = (*affixes.prefix, *affixes.suffix)
    for name, ids in named.items():
        for token in ids:
            if not 0 <= token < vocab_size:
                yield f"tokenizer.{name} has id {token}: the vocabulary has {vocab_size}"
