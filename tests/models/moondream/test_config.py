import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stoop_worker.errors import CheckpointError
from stoop_worker.models.loading.config_file import read_document
from stoop_worker.models.moondream.config import ModelConfig, released
from stoop_worker.models.moondream.config_parts import MoEConfig, TauConfig
from tests.project.modules import ROOT
from tests.support.tiny_model import tiny_config


def edited(section: str, **changes: Any) -> dict[str, Any]:
    document = tiny_config().document()
    document[section] |= changes
    return document


def without_suffix() -> dict[str, Any]:
    templates = tiny_config().document()["tokenizer"]["templates"]
    return edited("tokenizer", templates=templates | {"query": {"prefix": [1, 15, 2], "suffix": []}})


def test_a_document_reads_back_as_the_config() -> None:
    config = tiny_config()
    document = json.loads(json.dumps(config.document()))
    assert ModelConfig.of(document) == config
    assert ModelConfig.of({"model_type": "moondream1", "config": document}) == config


@pytest.mark.parametrize("document", [{"model_type": "moondream1"}, {"model_type": "moondream1", "config": {}}])
def test_a_released_repository_gets_the_defaults(document: dict[str, Any]) -> None:
    config = ModelConfig.of(document)
    assert (config.text.dim, config.text.n_layers, config.text.vocab_size, config.text.head_dim) == (
        2048,
        24,
        51200,
        64,
    )
    assert (config.text.prefix_attn, config.text.max_context, config.text.rope_theta) == (730, 2048, 10000.0)
    assert (config.vision.grid, config.vision.patches, config.vision.patch_dim) == (27, 729, 588)
    assert config.tokenizer.templates.caption["normal"] == (1, 32708, 2, 6382, 3)
    assert config.tokenizer.templates.detect.prefix == (1, 7235, 476, 2)
    assert config.tokenizer.query_double_suffix


@pytest.mark.parametrize(
    "document", [{"model_type": "moondream3"}, {"model_type": "moondream3", "config": {"skills": ["query", "point"]}}]
)
def test_a_released_moondream_3_gets_its_own_defaults(document: dict[str, Any]) -> None:
    config = ModelConfig.of(document)
    text, tokenizer = config.text, config.tokenizer
    assert text.moe == MoEConfig(num_experts=64, start_layer=4, experts_per_token=8, expert_inner_dim=1024)
    assert text.tau == TauConfig(gelu="erf", position_dtype="float32")
    assert (text.rope_theta, text.max_context) == (1_500_000.0, 32_768)
    assert (config.region.inner_dim, config.region.norm_input) == (None, "raw")
    assert (tokenizer.query_double_suffix, tokenizer.reasoning_after_suffix) == (False, False)
    assert (tokenizer.suppress, tokenizer.answer_ends, tokenizer.stop_rule) == (True, True, "pair_after_first")
    assert tokenizer.reasoning and tokenizer.gaze_as_point
    assert tokenizer.templates == ModelConfig().tokenizer.templates


def test_a_section_without_a_field_gets_the_release_s_default() -> None:
    config = released("moondream3")
    document = {"model_type": "moondream3", **json.loads(json.dumps(config.document()))}
    assert ModelConfig.of(document) == config
    del document["text"]["moe"], document["region"]["inner_dim"], document["text"]["rope_theta"]
    assert ModelConfig.of(document) == config


def test_the_crop_geometry_is_the_vision_config_s() -> None:
    geometry = tiny_config().vision.geometry
    assert (geometry.crop_size, geometry.patch_size, geometry.overlap_margin, geometry.max_crops) == (378, 14, 4, 12)


def test_a_field_left_out_gets_its_default() -> None:
    document = tiny_config().document()
    del document["text"]["rope_theta"]
    assert ModelConfig.of(document).text.rope_theta == 10000.0


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({"model_type": "moondream9"}, "model_type is 'moondream9': it must be moondream1 or moondream3"),
        ({"text": {}}, "vision, region, tokenizer are missing"),
        (edited("text", moe={"experts": 64}), "text.moe has fields this version does not know: experts"),
        (edited("text", moe={"num_experts": 0}), "text.moe.num_experts is 0: it must be positive"),
        (edited("text", moe={"start_layer": 3}), "text.moe.start_layer must be one of the layers"),
        (edited("text", moe={"start_layer": 1, "num_experts": 4}), "text.moe.experts_per_token must not exceed"),
        (edited("text", tau={"gelu": "sigmoid"}), "text.tau.gelu must be erf or tanh"),
        (edited("text", tau={"position_dtype": "float16"}), "text.tau.position_dtype must be float32 or bfloat16"),
        (edited("text", tau=5), "text.tau must be an object"),
        (
            edited("text", moe={"start_layer": 1, "adapter_scale": 0}),
            "text.moe.adapter_scale is 0: it must be positive",
        ),
        (edited("tokenizer", stop_rule="pairs"), "tokenizer.stop_rule must be token, pair or pair_after_first"),
        (edited("region", inner_dim=None, norm_input="mlp"), "region.norm_input must be raw or post_ln"),
        (edited("text", dim="128"), "text.dim is '128': expected int"),
        (edited("text", dim=True), "text.dim is True: expected int"),
        (edited("text", n_layers=0), "text.n_layers is 0: it must be positive"),
        (edited("text", n_heads=3), "multiple of text.n_heads"),
        (edited("text", n_kv_heads=1), "grouped heads are not read"),
        (edited("text", group_size=128), "int4 checkpoints are not read"),
        (edited("text", max_context=730), "text.max_context must be over text.prefix_attn"),
        (edited("text", prefix_attn=700), "text.prefix_attn must be 730"),
        (edited("vision", crop_size=379), "vision.crop_size must be a multiple"),
        (edited("vision", overlap_margin=14), "leaves nothing of a crop"),
        (edited("vision", resize="opencv"), "vision.resize must be pillow or libvips"),
        (edited("vision", normalise="twice"), "vision.normalise must be stepwise or once"),
        (edited("vision", proj_out_dim=64), "vision.proj_out_dim must equal text.dim"),
        (edited("region", dim=64), "region.dim must equal text.dim"),
        (edited("region", size_out_dim=7), "region.size_out_dim must be even"),
        (edited("tokenizer", eos_id=50256), "tokenizer.eos_id has id 50256: the vocabulary has 512"),
        (edited("tokenizer", query_double_suffix=1), "query_double_suffix is 1: expected bool"),
        (edited("tokenizer", templates={"caption": {"short": [1]}}), "lacks detect, point, query"),
        (without_suffix(), "tokenizer.templates.query.suffix is empty: after reasoning, no answer would begin"),
        (edited("tokenizer", templates=None), "tokenizer.templates must be an object"),
    ],
)
def test_an_impossible_value_is_named(document: dict[str, Any], complaint: str) -> None:
    with pytest.raises(CheckpointError, match="config: ") as caught:
        ModelConfig.of(document)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("skill", "section", "complaint"),
    [
        ("caption", {}, "templates.caption must map each length"),
        ("caption", {"short": "describe"}, "templates.caption.short must be a list of token ids"),
        ("query", {"prefix": [1, 900], "suffix": [3]}, "templates.query has id 900"),
        ("point", {"prefix": [1.5], "suffix": [3]}, "templates.point.prefix must be a list of token ids"),
        ("detect", {"before": [1]}, "templates.detect has fields this version does not know: before"),
    ],
)
def test_templates_are_checked(skill: str, section: dict[str, Any], complaint: str) -> None:
    document = tiny_config().document()
    document["tokenizer"]["templates"][skill] = section
    with pytest.raises(CheckpointError) as caught:
        ModelConfig.of(document)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(("contents", "complaint"), [("{", "is not JSON"), ("[]", "must hold a JSON object")])
def test_a_file_that_is_not_a_config_is_named(tmp_path: Path, contents: str, complaint: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(contents)
    with pytest.raises(CheckpointError, match=f"config.json {complaint}"):
        read_document(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cannot read .*config.json"):
        read_document(tmp_path / "config.json")


def test_the_guide_has_every_choice_with_its_default() -> None:
    page = (ROOT / "docs/guides/evaluate.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+(?:\.\w+)+)` \| `([^`]+)`", page, re.MULTILINE)
    assert len(rows) == 14
    for place, default in rows:
        found: Any = released("moondream3").document()
        for name in place.split("."):
            found = found[name]
        assert default == (json.dumps(found) if not isinstance(found, str) else found), place
    example = re.search(r"```json\n(.+)\n```", page)
    assert example is not None
    config = ModelConfig.of(json.loads(example[1]))
    assert config.text.tau == TauConfig(gelu="tanh") and config.vision.resize == "libvips"
    assert replace(config.text, tau=TauConfig()) == released("moondream3").text
