"""The command that times kernels, as far as it goes without a GPU."""

import pytest

pytest.importorskip("torch")

import torch

from benchmarks.kernels import __main__ as command


def test_help_names_the_modules_and_runs_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(["--help"])
    assert caught.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "--sweep" in shown and "low_rank" in shown and "paged_attention" in shown


def test_an_unknown_module_is_refused() -> None:
    with pytest.raises(SystemExit, match="there is no module bicycle"):
        command.main(["moe", "bicycle"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_there_is_one_plain_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="kernels run on a CUDA GPU"):
        command.main(["moe"])
    assert capsys.readouterr() == ("", "")
