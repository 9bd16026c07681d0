import pytest

from stoop.bulk.budget import read_budget
from stoop.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "failed", "ended", "hopeless"),
    [
        ("5", 5, 5, False),
        ("5", 6, 1000, True),
        ("0", 1, 1, True),
        ("5%", 6, 99, False),
        ("5%", 5, 100, False),
        ("5%", 6, 100, True),
        ("0.05", 51, 1000, True),
        ("100%", 1000, 1000, False),
        ("1.0", 1000, 1000, False),
    ],
)
def test_a_budget_is_a_count_or_a_share(text: str, failed: int, ended: int, hopeless: bool) -> None:
    assert read_budget(text).is_hopeless(failed, ended) is hopeless


def test_the_share_applies_at_the_end_even_to_few_rows() -> None:
    assert read_budget("50%").is_spent(2, 3)
    assert not read_budget("50%").is_hopeless(2, 3)
    assert not read_budget("50%").is_spent(1, 2)


@pytest.mark.parametrize("text", ["", "%", "many", "-1", "101%", "1.5", "nan", "5 %%"])
def test_an_unreadable_budget_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--max-failures takes"):
        read_budget(text)
