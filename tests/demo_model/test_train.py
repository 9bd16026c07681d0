import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from deploy.demo_model import train
from deploy.demo_model.muon import Muon
from deploy.demo_model.state import load_state

Train = Callable[..., list[dict[str, object]]]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Train]:
    """Runs the program with arguments, and returns what it printed."""
    precision = torch.get_float32_matmul_precision()

    def run(*arguments: str) -> list[dict[str, object]]:
        monkeypatch.setattr("sys.argv", ["train", "--smoke", *arguments])
        train.main()
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    yield run
    torch.set_float32_matmul_precision(precision)


def test_training_runs_saves_resumes_and_sits_its_exam(trained: Train, tmp_path: Path) -> None:
    first = trained("--out", str(tmp_path / "one"), "--steps", "1", "--exam", "0")
    second = trained("--out", str(tmp_path / "two"), "--steps", "2", "--exam", "1", "--resume", str(tmp_path / "one"))
    assert [entry["step"] for entry in first] == [1]
    assert [entry["step"] for entry in second] == [2, 2]
    assert set(second[-1]["exam"]) == {"one crop", "many crops", "no local crops"}  # type: ignore[call-overload]
    before, after = load_state(tmp_path / "one")[0], load_state(tmp_path / "two")[0]
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert set(before) - moved == {"region.coord_features", "region.size_features"}
    for file in (tmp_path / "two").iterdir():
        assert file.stat().st_size < 16 << 20


def test_muon_steps_every_direction_of_a_matrix_alike() -> None:
    weight = torch.zeros(8, 4, requires_grad=True)
    muon = Muon({"a.weight": weight}, momentum=0.0, decay=0.0)
    left, _ = torch.linalg.qr(torch.randn(8, 4, generator=torch.Generator().manual_seed(0)))
    weight.grad = left @ torch.diag(torch.tensor([100.0, 10.0, 1.0, 0.5]))
    muon.step(0.1)
    values = torch.linalg.svdvals(weight.detach()) / (0.1 * 0.2 * 8**0.5)
    assert values.min() > 0.6
    assert values.max() < 1.3
