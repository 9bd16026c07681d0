"""generation_config.json: the ends of a text and the makers' sampling."""

import json
from pathlib import Path
from typing import Any

import pytest

from stoop_worker.errors import CheckpointError
from stoop_worker.models.loading.generation import read_ends, read_generation, read_sampling


def test_the_file_of_a_released_model_is_read(tmp_path: Path) -> None:
    assert read_generation(tmp_path) == {}
    released = {"do_sample": True, "eos_token_id": [6, 7], "temperature": 0.7, "top_p": 0.8, "top_k": 20}
    (tmp_path / "generation_config.json").write_text(json.dumps({**released, "repetition_penalty": 1.0}))
    generation = read_generation(tmp_path)
    assert read_ends(generation, {"eos_token_id": 3}, 10) == (6, 7)
    assert read_sampling(generation) == {"temperature": 0.7, "top_p": 0.8, "top_k": 20}


@pytest.mark.parametrize(
    ("generation", "sampling"),
    [
        ({}, {}),
        ({"top_k": 5, "temperature": None}, {"top_k": 5}),
        ({"do_sample": False, "top_p": 1}, {"top_p": 1.0, "temperature": 0.0}),
    ],
)
def test_only_the_settings_in_the_file_are_used(generation: dict[str, Any], sampling: dict[str, float]) -> None:
    assert read_sampling(generation) == sampling


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1}, {"top_p": 1.5}, {"top_k": 2.5}, {"top_k": True}, {"top_p": "1"}]
)
def test_a_value_out_of_range_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=next(iter(wrong))):
        read_sampling(wrong)


@pytest.mark.parametrize("ends", [None, [], [10], "6", [-1]])
def test_ends_must_be_ids_of_the_model(ends: object) -> None:
    with pytest.raises(CheckpointError, match="eos_token_id"):
        read_ends({"eos_token_id": ends}, {}, 10)
