import pytest
import torch

from tests.engine.micro import MICRO, micro_moondream
from worker.engine.config import EngineConfig, count_pages, page_bytes
from worker.errors import ConfigError


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"page_size": 0}, "page_size is 0"),
        ({"max_batch": 0}, "max_batch is 0"),
        ({"crop_budget": 0}, "crop_budget is 0"),
        ({"max_batch": 64, "token_budget": 64}, "larger than max_batch"),
        ({"memory_reserve": 1.0}, "memory_reserve is 1.0"),
    ],
)
def test_what_cannot_work_says_what_to_change(changes: dict[str, float], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        EngineConfig(**changes)  # type: ignore[arg-type]


def test_a_page_must_divide_the_context() -> None:
    with pytest.raises(ConfigError, match="make it divide the longest context, 96"):
        count_pages(EngineConfig(page_size=5), micro_moondream())


def test_one_full_context_must_fit() -> None:
    assert count_pages(EngineConfig(page_size=16, pages=7), micro_moondream()) == 7
    with pytest.raises(ConfigError, match="at least 7"):
        count_pages(EngineConfig(page_size=16, pages=6), micro_moondream())


def test_a_cpu_gets_room_for_some_full_contexts() -> None:
    pages = count_pages(EngineConfig(page_size=16), micro_moondream())
    assert pages * 16 >= 8 * MICRO.text.max_context


def test_a_page_holds_keys_and_values_of_all_layers() -> None:
    # 2 of them, 2 layers, 16 positions, 32 channels, 2 bytes
    assert page_bytes(MICRO.text, torch.bfloat16, 16) == 2 * 2 * 16 * 32 * 2
