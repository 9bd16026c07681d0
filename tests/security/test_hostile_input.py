"""Every hostile input ends with the right code, harms no other job, and is not repeated in the log."""

import asyncio
from collections.abc import Iterator

import pytest

from stoop.demo.embedded import EmbeddedRedis, EmbeddedS3
from stoop_schemas.state import State
from tests.security.case import MARK, Case
from tests.security.cases_entry import VALUES
from tests.security.pipeline import Seen, Servers
from tests.security.table import ALL, ending, markdown, run_all
from tests.support.tiny_model import tiny_tokenizer


@pytest.fixture(scope="module")
def seen(redis_server: EmbeddedRedis, s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """The outcome of all inputs, run together: each is one among many."""
    import redis

    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environment.items():
            patch.setenv(name, value)
        yield asyncio.run(run_all(Servers(redis_server.url, s3, tmp_path_factory.mktemp("hostile"))))


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_it_ends_as_it_should(seen: Seen, case: Case) -> None:
    result = seen.results[case.name]
    assert ending(result) == (case.ends, case.last)
    if result.failure is not None:
        assert len(result.failure.message) < 2000


def test_neither_user_content_nor_secrets_are_logged(seen: Seen) -> None:
    assert MARK not in seen.log
    assert seen.log.count("job settled") == len(ALL)
    assert "Traceback" not in seen.log
    assert '"level": "error"' not in seen.log


def test_nothing_is_left_in_the_queue(seen: Seen) -> None:
    assert (seen.waiting, seen.pending) == (0, 0)
    assert seen.dead > 0


def test_texts_reach_the_engine_as_they_are_and_spell_no_control_tokens(seen: Seen) -> None:
    [question] = [text for text in seen.asked if "endoftext" in text]
    assert question == f"<|endoftext|><|md_reserved_0|>{MARK}"
    tokenizer = tiny_tokenizer()
    assert tokenizer.detokenize(tokenizer.tokenize(question)) == question, "a control token would be left out"


def test_no_failure_is_a_defect_of_ours(seen: Seen) -> None:
    codes = {ending(result)[0] for result in seen.results.values()}
    assert "internal" not in codes
    assert {"malformed", "unsupported_skill", "invalid_argument", "expired", "completed"} <= codes


def test_a_password_in_an_address_is_not_repeated(seen: Seen) -> None:
    secret = [case.name for case in ALL if "credential" in case.name or "password" in case.name]
    assert len(secret) >= 4
    for name in secret:
        failure = seen.results[name].failure
        assert failure is not None
        assert MARK not in failure.message


def test_there_are_many_and_each_has_a_name_of_its_own() -> None:
    assert len({case.name for case in ALL}) == len(ALL) >= 40
    ids = [case.job_id for case in ALL if case.job_id]
    assert len(set(ids)) == len(ids)
    assert len(VALUES) > 20


def test_the_table_has_a_line_for_each(seen: Seen) -> None:
    lines = markdown(seen.results).splitlines()
    for case in ALL:
        assert sum(line.startswith(f"| {case.name} | `{case.ends}`") for line in lines) == 1
    assert seen.results["a PNG bomb"].status is State.FAILED
