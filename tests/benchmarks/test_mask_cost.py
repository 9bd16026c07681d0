import json
from pathlib import Path

import jsonschema
import pytest

from benchmarks.families import mask_cost
from benchmarks.instructions import can_count
from tests.support.tiny_decoder import QWEN_TEMPLATE, VOCABULARY, write_language


@pytest.mark.skipif(not can_count(), reason="perf cannot count instructions here")
def test_every_text_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_language(tmp_path, QWEN_TEMPLATE)
    kept = ("any object", "strings cut to 3")
    monkeypatch.setattr(mask_cost, "CASES", {name: mask_cost.CASES[name] for name in kept})
    found = mask_cost.main([str(tmp_path / "tokenizer.json"), "--size", str(VOCABULARY)])
    assert tuple(found) == kept and min(found.values()) > 1


def test_every_text_is_of_its_schema() -> None:
    for schema, value in mask_cost.CASES.values():
        jsonschema.validate(json.loads(json.dumps(value)), schema)
