"""A model's configuration, read from its config.json, and the released ones."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from stoop_worker.errors import CheckpointError
from stoop_worker.models.loading.config_file import fields_of, ids_of
from stoop_worker.models.moondream.config_check import check
from stoop_worker.models.moondream.config_parts import (
    Affixes,
    MoEConfig,
    RegionConfig,
    TauConfig,
    Templates,
    TextConfig,
    TokenizerConfig,
    VisionConfig,
)
from stoop_worker.models.moondream.sections import MOONDREAM2, MOONDREAM3, sections_of

__all__ = ["ModelConfig", "released"]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """All that describes a model except its weights; raises `CheckpointError` if no such model is possible."""

    text: TextConfig = field(default_factory=TextConfig)
    vision: VisionConfig = field(default_factory=VisionConfig)
    region: RegionConfig = field(default_factory=RegionConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)

    def __post_init__(self) -> None:
        check(self.text, self.vision, self.region, self.tokenizer)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "ModelConfig":
        """Build from the sections text, vision, region and tokenizer, at the top or under "config".

        A released model has none of them: its model_type chooses the defaults. A field that a section leaves out gets
        the same default; a field that is not known is an error.
        """
        sections, base = sections_of(document), released(document.get("model_type"))
        if sections is None:
            return base
        tokenizer = fields_of(TokenizerConfig, sections["tokenizer"], "tokenizer")
        if "templates" in tokenizer:
            tokenizer["templates"] = _templates(tokenizer["templates"])
        text = fields_of(TextConfig, sections["text"], "text")
        for name, kind in (("moe", MoEConfig), ("tau", TauConfig)):
            if text.get(name) is not None:
                text[name] = kind(**fields_of(kind, text[name], f"text.{name}"))
        return cls(
            text=replace(base.text, **text),
            vision=replace(base.vision, **fields_of(VisionConfig, sections["vision"], "vision")),
            region=replace(base.region, **fields_of(RegionConfig, sections["region"], "region")),
            tokenizer=replace(base.tokenizer, **tokenizer),
        )

    @property
    def model_type(self) -> str:
        """The `model_type` in the model's config.json."""
        return MOONDREAM2 if self.text.moe is None and self.text.tau is None else MOONDREAM3

    def document(self) -> dict[str, Any]:
        """Return the configuration in the form that `of` reads, ready for JSON."""
        return asdict(self)


def released(model_type: object) -> ModelConfig:
    """Return the released configuration of a model_type: Moondream 3's, or otherwise Moondream 2's."""
    if model_type != MOONDREAM3:
        return ModelConfig()
    return ModelConfig(
        # the released config says 4096, its card 32K; the rotation is a formula, and --max-context lowers the limit
        text=TextConfig(max_context=32_768, rope_theta=1_500_000.0, moe=MoEConfig(), tau=TauConfig()),
        region=RegionConfig(inner_dim=None),
        tokenizer=TokenizerConfig(
            query_double_suffix=False,
            reasoning_after_suffix=False,
            answer_ends=True,
            stop_rule="pair_after_first",
            reasoning=True,
            gaze_as_point=True,
        ),
    )


def _templates(section: object) -> Templates:
    where = "tokenizer.templates"
    given = fields_of(Templates, section, where)
    missing = sorted({known.name for known in fields(Templates)} - set(given))
    if missing:
        raise CheckpointError(f"config: {where} lacks {', '.join(missing)}")
    caption = given["caption"]
    if not isinstance(caption, Mapping) or not caption:
        raise CheckpointError(f"config: {where}.caption must map each length to its ids")
    return Templates(
        caption={str(length): ids_of(ids, f"{where}.caption.{length}") for length, ids in caption.items()},
        query=_affixes(given["query"], f"{where}.query"),
        detect=_affixes(given["detect"], f"{where}.detect"),
        point=_affixes(given["point"], f"{where}.point"),
    )


def _affixes(section: object, where: str) -> Affixes:
    given = fields_of(Affixes, section, where)
    return Affixes(*(ids_of(given.get(side, ()), f"{where}.{side}") for side in ("prefix", "suffix")))
