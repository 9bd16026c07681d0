"""The attention backend chosen on each machine, and the error where none can be."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.device.attention_choice import AttentionFacts, choose_attention, flashinfer_lacks
from stoop_worker.engine.engine import Engine
from stoop_worker.errors import ConfigError
from stoop_worker.models.moondream.family import MoondreamFamily
from tests.engine.micro import micro_moondream

A100, H200, L4 = (8, 0), (9, 0), (8, 9)
LACKING = "FlashInfer is not installed: pip install 'stoop[flashinfer]'"

FACTS = AttentionFacts(
    capability=A100,
    query_heads=32,
    head_dim=64,
    dtype=torch.bfloat16,
    kv_dtype=torch.bfloat16,
    triton=True,
    lacks=lambda: None,
)


@pytest.mark.parametrize("capability", [A100, L4, (10, 0)])
def test_flashinfer_serves_where_our_kernels_for_hopper_do_not_run(capability: tuple[int, int]) -> None:
    choice = choose_attention("auto", replace(FACTS, capability=capability))
    assert (choice.prefill, choice.decode) == ("flashinfer", "flashinfer")
    assert ".".join(map(str, capability)) in choice.why


def test_on_hopper_the_measured_one_serves() -> None:
    choice = choose_attention("auto", replace(FACTS, capability=H200))
    assert (choice.prefill, choice.decode) == ("triton", "triton")
    assert "measured" in choice.why


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"lacks": lambda: LACKING}, r"pip install 'stoop\[flashinfer\]'"),
        ({"query_heads": None}, "page lists of its own"),
        ({"head_dim": 32}, "64 or 128 channels"),
        ({"dtype": torch.float32, "kv_dtype": torch.float32}, "not in float32"),
        ({"kv_dtype": torch.float8_e4m3fn}, "leave --fp8-cache off"),
        ({"capability": (7, 5)}, "8.0 or higher"),
    ],
    ids=["not installed", "whisper", "heads", "float32", "fp8 cache", "turing"],
)
def test_without_flashinfer_ours_serve_unless_it_is_asked_for(changed: dict[str, object], part: str) -> None:
    facts = replace(FACTS, **changed)  # type: ignore[arg-type]
    choice = choose_attention("auto", facts)
    assert (choice.prefill, choice.decode) == ("triton", "triton")
    with pytest.raises(ConfigError, match=f"--attention flashinfer: .*{part}"):
        choose_attention("flashinfer", facts)


@pytest.mark.parametrize("name", ["triton", "flashinfer"])
@pytest.mark.parametrize("capability", [A100, H200])
def test_the_one_asked_for_serves(name: str, capability: tuple[int, int]) -> None:
    choice = choose_attention(name, replace(FACTS, capability=capability))
    assert (choice.prefill, choice.decode, choice.why) == (name, name, "asked for")


@pytest.mark.parametrize("changed", [{"capability": None}, {"triton": False}, {"head_dim": 80}])
def test_the_reference_serves_where_no_kernel_runs(changed: dict[str, object]) -> None:
    facts = replace(FACTS, **changed)  # type: ignore[arg-type]
    assert choose_attention("auto", facts).decode == "reference"
    for name in ("triton", "flashinfer"):
        with pytest.raises(ConfigError, match=f"--attention {name}: .*--attention auto"):
            choose_attention(name, facts)


def test_an_engine_on_a_cpu_has_the_reference_and_refuses_others() -> None:
    family = MoondreamFamily(micro_moondream())
    config = EngineConfig(page_size=4, max_batch=2)
    assert Engine(family, config).attention.prefill == "reference"
    with pytest.raises(ConfigError, match="--attention flashinfer: FlashInfer needs an NVIDIA GPU"):
        Engine(family, replace(config, attention="flashinfer"))
    with pytest.raises(ConfigError, match="auto, triton, flashinfer"):
        replace(config, attention="cudnn")


def test_each_missing_part_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLASHINFER_NVCC", raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    with monkeypatch.context() as hidden:
        hidden.delitem(sys.modules, "flashinfer")
        hidden.setattr(sys, "path", [])
        assert flashinfer_lacks() == LACKING
    package = tmp_path / "flashinfer"
    package.mkdir()
    (package / "__init__.py").write_text("import a_package_that_is_missing")
    monkeypatch.delitem(sys.modules, "flashinfer")
    monkeypatch.syspath_prepend(tmp_path)
    assert "install CUDA's nvcc" in str(flashinfer_lacks())
    (tmp_path / "bin").mkdir()
    for program, missing in (("bin/nvcc", "install ninja"), ("ninja", "a_package_that_is_missing")):
        (tmp_path / program).touch(mode=0o755)
        assert missing in str(flashinfer_lacks())
