"""The choices that are made and logged while an engine is built."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from stoop_worker.engine_process.boot import boot
from stoop_worker.engine_process.protocol import EngineSettings
from stoop_worker.errors import ConfigError
from stoop_worker.kernels.hopper import fallback
from tests.support.tiny_decoder import LLAMA, write_decoder


def settings_of(folder: Path, attention: str) -> EngineSettings:
    model = str(write_decoder(folder, LLAMA))
    return EngineSettings(model=model, device="cpu", max_batch=2, pages=64, max_context=256, attention=attention)


def test_the_backend_of_attention_is_logged_with_its_reason(tmp_path: Path) -> None:
    with capture_logs() as entries:
        boot(settings_of(tmp_path, "auto"))
    chosen = next(entry for entry in entries if entry["event"] == "attention chosen")
    assert (chosen["prefill"], chosen["decode"]) == ("reference", "reference")
    assert chosen["why"] == "there is no CUDA device"


def test_a_kernel_that_does_not_compile_here_is_logged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback, "_given_up", {"row_product": "row_product.cu(7): error"})
    with capture_logs() as entries:
        boot(settings_of(tmp_path, "auto"))
    (warning,) = (entry for entry in entries if entry.get("kernel") == "row_product")
    assert (warning["log_level"], warning["reason"]) == ("warning", "row_product.cu(7): error")


@pytest.mark.parametrize("attention", ["triton", "flashinfer"])
def test_a_backend_that_cannot_run_here_ends_the_start(tmp_path: Path, attention: str) -> None:
    with pytest.raises(ConfigError, match=f"--attention {attention}: .*use --attention auto"):
        boot(settings_of(tmp_path, attention))
