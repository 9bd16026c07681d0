from dataclasses import replace

import pytest
import torch

from stoop_worker.engine.config import EngineConfig, KVMemory, count_bytes, page_bytes
from stoop_worker.engine.device.penalties import TokenCounts
from stoop_worker.engine.spec import KVSpec
from stoop_worker.errors import ConfigError
from stoop_worker.models.moondream.family import MoondreamFamily
from tests.engine.micro import MICRO, micro_moondream


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"page_size": 0}, "page_size is 0"),
        ({"max_batch": 0}, "max_batch is 0"),
        ({"encode_budget": 0}, "encode_budget is 0"),
        ({"stall_budget": 0}, "stall_budget is 0"),
        ({"max_context": 0}, "max_context is 0"),
        ({"max_batch": 64, "token_budget": 64}, "larger than max_batch"),
        ({"memory_reserve": 1.0}, "memory_reserve is 1.0"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_advice(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EngineConfig(**changes)  # type: ignore[arg-type]


def sized(**changes: int) -> KVMemory:
    model = MoondreamFamily(micro_moondream())
    return KVMemory.of(EngineConfig(**changes), model.spec, device=model.device, dtype=model.dtype)  # type: ignore[arg-type]


def test_a_lower_cap_than_the_models_longest_context_needs_fewer_pages() -> None:
    assert sized(page_size=16, pages=4, max_context=48) == KVMemory(4, 48, torch.float64)
    assert sized(page_size=16, max_context=10_000).max_context == MICRO.text.max_context


def test_a_page_must_divide_the_context() -> None:
    with pytest.raises(ConfigError, match="make it divide the longest context, 96"):
        sized(page_size=5)


def test_one_full_context_must_fit() -> None:
    assert sized(page_size=16, pages=7).pages == 7
    with pytest.raises(ConfigError, match="at least 7"):
        sized(page_size=16, pages=6)


def test_a_cpu_gets_room_for_some_full_contexts() -> None:
    pages = sized(page_size=16).pages
    assert pages * 16 >= 8 * MICRO.text.max_context


def test_on_a_gpu_pages_leave_room_for_the_counts_of_penalties(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 20, 1 << 20))
    spec = replace(MoondreamFamily(micro_moondream()).spec, vocab_size=20_000)
    config = EngineConfig(max_batch=3, memory_reserve=0.25)
    memory = KVMemory.of(config, spec, device=torch.device("cuda"), dtype=torch.float16)
    counts = 4 * 20_000 * 4
    assert count_bytes(config, 20_000) == counts
    size = page_bytes(spec.kv, torch.float16, config.page_size)
    assert memory.pages == (0.75 * (1 << 20) - counts) // size


def test_the_counts_of_penalties_have_their_memory_before_the_first_request() -> None:
    counts = TokenCounts(3, 1000, torch.device("cpu"))
    none_R = torch.zeros(0)
    assert counts.rows(none_R, none_R, none_R).counts_SV is counts._counts_SV
    assert counts._counts_SV.nbytes == count_bytes(EngineConfig(max_batch=2), 1000)


def test_a_page_holds_keys_and_values_of_all_layers() -> None:
    # 2 of them, 2 layers, 16 positions, 32 channels, 2 bytes
    assert page_bytes(KVSpec(layers=2, heads=2, head_dim=16), torch.bfloat16, 16) == 2 * 2 * 16 * 32 * 2
