"""The choices that are made and logged while an engine is built."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLTokenizer
from structlog.testing import capture_logs

from stoop_worker.engine.engine import Engine
from stoop_worker.engine.grammars import grammars
from stoop_worker.engine.request import Chat, Grammar, Message, Refused, Request, Sampling
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


def test_a_template_that_refuses_the_first_request_ends_the_start_in_its_own_words(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "auto")
    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('no chats today') }}")
    with pytest.raises(ConfigError, match=r"a first request: the model's chat template refuses .*: no chats today$"):
        boot(settings)


def test_jpegs_on_a_gpu_end_the_start_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--jpegs-on-gpu needs a GPU"):
        boot(replace(settings_of(tmp_path, "auto"), jpegs_on_gpu=True))


def test_the_first_json_schema_of_a_ready_engine_reads_no_vocabulary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # reading one stops every thread of the process for seconds, and with them all streams
    read: list[int] = []

    def reading(*arguments: Any, **named: Any) -> LLTokenizer:
        read.append(1)
        return LLTokenizer(*arguments, **named)

    monkeypatch.setattr(grammars, "LLTokenizer", reading)
    engine, _ = boot(settings_of(tmp_path, "auto"))
    assert isinstance(engine, Engine) and len(read) == 1
    sampling = Sampling(max_tokens=4, grammar=Grammar(schema='{"type": "object"}'))
    prepared = engine.prepare(Request("1", Chat((Message("user", ("a question",)),)), (), sampling))
    assert not isinstance(prepared, Refused) and len(read) == 1
