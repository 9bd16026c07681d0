"""The comparison with reference code, against a stand-in for that code."""

import json
from pathlib import Path

import pytest

from benchmarks.accuracy import parity
from benchmarks.accuracy.parity import agreement
from benchmarks.accuracy.reference import from_clone, from_remote_code
from deploy.demo_model.untrained import write_model
from tests.support.tiny_model import formula_weights, tiny_moondream3_config, tiny_tokenizer, write_checkpoint

REMOTE_CODE = """
import numpy as np
import torch

from stoop_worker.engine.request import Caption, Detect, Point, Query, Request, Sampling
from stoop_worker.images import Image, cut
from stoop_worker.models.moondream.model import load
from tests.engine import naive


class SlowMoondream(torch.nn.Module):
    @classmethod
    def from_pretrained(cls, folder, torch_dtype):
        made = cls()
        made.model = torch.nn.Module()
        object.__setattr__(made, "loaded", load(folder, device="cpu", dtype=torch_dtype))
        return made

    def encode_image(self, image):
        return cut(Image.of(np.asarray(image)), self.loaded.config.vision.geometry)

    def answer(self, image, task, settings):
        sampling = Sampling(temperature=0.0, **{name: most for name, most in settings.items() if "max" in name})
        return naive.answer(self.loaded, Request("a", task, (image,), sampling))

    def query(self, image, question, *, settings):
        reasoning = self.loaded.config.tokenizer.reasoning
        return {"answer": self.answer(image, Query(question, reasoning=reasoning), settings).text + WRONG}

    def caption(self, image, length, *, settings):
        return {"caption": self.answer(image, Caption(length), settings).text}

    def detect(self, image, object, *, settings):
        names = ("x_min", "y_min", "x_max", "y_max")
        boxes = self.answer(image, Detect(object), settings).boxes
        return {"objects": [dict(zip(names, box)) for box in boxes]}

    def point(self, image, object, *, settings):
        points = self.answer(image, Point(object), settings).points
        return {"points": [{"x": x, "y": y} for x, y in points]}
"""

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


@pytest.mark.parametrize(("wrong", "code"), [("", 0), (" or not", 1)])
def test_the_code_in_a_moondream_3_s_folder_is_asked_the_same(
    wrong: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_moondream3_config(vocab_size=512)
    write_model(tmp_path, config, formula_weights(config), tiny_tokenizer(), card={"name": "tiny3", "untrained": True})
    document = json.loads((tmp_path / "config.json").read_text())
    document["auto_map"] = {"AutoModelForCausalLM": "slow_moondream.SlowMoondream"}
    (tmp_path / "config.json").write_text(json.dumps(document))
    (tmp_path / "slow_moondream.py").write_text(f"WRONG = {wrong!r}\n{REMOTE_CODE}")
    assert parity.main([str(tmp_path), "--remote-code", "--count", "1", "--tokens", "2"]) == code
    shares = dict(line.split()[:3:2] for line in capsys.readouterr().out.splitlines() if "equal" in line)
    assert shares == {
        "query": "0.0%" if wrong else "100.0%",
        "caption": "100.0%",
        "detect": "100.0%",
        "point": "100.0%",
    }
