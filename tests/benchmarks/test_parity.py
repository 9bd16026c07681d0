"""The comparison with reference code, against a stand-in for that code that answers with fixed values."""

from pathlib import Path

import pytest

from benchmarks.accuracy import parity
from benchmarks.accuracy.parity import agreement
from benchmarks.accuracy.reference import from_clone, from_remote_code
from tests.support.tiny_model import write_checkpoint

BOX = {"x_min": 0.1, "y_min": 0.2, "x_max": 0.3, "y_max": 0.4}


def test_texts_are_compared_up_to_their_first_difference() -> None:
    assert agreement("query", {"answer": "a cat"}, {"answer": "a cat"}) == parity.Agreement("query", True, 1.0)
    assert agreement("caption", {"caption": "a cat"}, {"caption": "a dog."}) == parity.Agreement(
        "caption", False, 2 / 6
    )
    assert agreement("query", {"answer": ""}, {"answer": ""}).equal


@pytest.mark.parametrize(("moved", "equal"), [(0.0, True), (0.001, True), (0.01, False)])
def test_boxes_are_equal_within_two_bins(moved: float, equal: bool) -> None:
    other = {**BOX, "x_max": BOX["x_max"] + moved}
    assert agreement("detect", {"objects": [BOX]}, {"objects": [other]}).equal is equal
    assert not agreement("detect", {"objects": [BOX, BOX]}, {"objects": [BOX]}).equal


def test_missing_code_is_named_with_the_remedy(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    with pytest.raises(SystemExit, match="git clone https://github"):
        from_clone(tmp_path / "nowhere", tmp_path, device="cpu", dtype="float32")
    with pytest.raises(SystemExit, match="has no Python files"):
        from_remote_code(tmp_path, device="cpu", dtype="float32")
