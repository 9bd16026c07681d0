import pytest

from stoop_schemas.failure import RETRYABLE, Failure, FailureCode, Rejected


@pytest.mark.parametrize("code", FailureCode)
def test_retryable_follows_the_table(code: FailureCode) -> None:
    assert Failure.of(code, "why").retryable is (code in RETRYABLE)


def test_the_codes_worth_another_try_are_those_of_the_contract() -> None:
    assert {code.value for code in RETRYABLE} == {
        "image_timeout",
        "audio_timeout",
        "storage_unavailable",
        "worker_lost",
        "engine_fault",
        "internal",
    }


def test_rejected_carries_its_failure() -> None:
    rejected = Rejected(FailureCode.MALFORMED, "no id")
    assert str(rejected) == "no id"
    assert rejected.failure == Failure(FailureCode.MALFORMED, "no id", retryable=False)
