"""Every form of Celery's canvas over our worker and a stock one, on a real Redis."""

from uuid import uuid4

import pytest
from celery import chain, chord, group
from celery.exceptions import ChordError, TaskRevokedError

from stoop.celery import SkillFailed, caption, query
from tests.celery.conftest import CeleryDeployment
from tests.celery.works import SECONDS, until


def answer(text: str) -> dict[str, str]:
    return {"answer": text}


def test_a_task_is_sent_and_its_result_got(deployment: CeleryDeployment) -> None:
    result = query.delay(None, "hello")
    assert result.get(timeout=SECONDS) == answer("hello")
    assert result.status == "SUCCESS"
    assert result.date_done is not None


def test_arguments_by_name_and_in_the_other_lane(deployment: CeleryDeployment) -> None:
    result = query.apply_async(
        kwargs={"question": "bulk", "settings": {"temperature": 0.0}, "custom_id": "7"}, queue="stoop.bulk"
    )
    assert result.get(timeout=SECONDS) == answer("bulk")


def test_a_failed_task_gives_its_reason(deployment: CeleryDeployment) -> None:
    with pytest.raises(SkillFailed, match="invalid_argument") as failed:
        query.delay(None, "?", settings={"temperature": 99.0}).get(timeout=SECONDS)
    assert failed.value.code == "invalid_argument"
    assert "temperature" in failed.value.message


def test_chain_of_our_tasks_and_the_shops(deployment: CeleryDeployment) -> None:
    drawn = chain(deployment.shop.draw.s(200), caption.s()).apply_async().get(timeout=SECONDS)
    assert drawn == caption.delay(deployment.shop.data_uri(200)).get(timeout=SECONDS)
    assert drawn != caption.delay(deployment.shop.data_uri(20)).get(timeout=SECONDS)
    last = chain(query.s(None, "loud"), deployment.shop.shout.s()).apply_async()
    assert last.get(timeout=SECONDS) == "LOUD"
    assert last.parent.get(timeout=SECONDS) == answer("loud")
    assert deployment.ledger("shout") == ["LOUD"]


def test_a_link_is_called_with_the_answer(deployment: CeleryDeployment) -> None:
    linked = deployment.shop.shout.s().set(task_id=str(uuid4()))
    query.apply_async((None, "linked"), link=linked).get(timeout=SECONDS)
    assert deployment.shop.app.AsyncResult(linked.id).get(timeout=SECONDS) == "LINKED"
    assert deployment.ledger("shout") == ["LINKED"]


def test_group(deployment: CeleryDeployment) -> None:
    answers = group(query.s(None, f"number {i}") for i in range(20)).apply_async()
    assert answers.get(timeout=SECONDS) == [answer(f"number {i}") for i in range(20)]


def test_chord(deployment: CeleryDeployment) -> None:
    parts = [query.s(None, f"part {i}") for i in range(6)]
    assert chord(parts, deployment.shop.collect.s()).apply_async().get(timeout=SECONDS) == [
        f"part {i}" for i in range(6)
    ]
    assert deployment.ledger("collect") == [",".join(f"part {i}" for i in range(6))]


def test_chord_in_a_chain_between_our_tasks_and_the_shops(deployment: CeleryDeployment) -> None:
    parts = group(query.si(None, f"piece {i}") for i in range(4))
    whole = chain(query.si(None, "first"), parts, deployment.shop.collect.s(), query.si(None, "last"))
    assert whole.apply_async().get(timeout=SECONDS) == answer("last")
    assert deployment.ledger("collect") == ["piece 0,piece 1,piece 2,piece 3"]


def test_our_task_is_a_chords_body(deployment: CeleryDeployment) -> None:
    body = query.si(None, "the body")
    whole = chord([query.s(None, "one"), deployment.shop.draw.s(1)], body)
    assert whole.apply_async().get(timeout=SECONDS) == answer("the body")


def test_an_errback_is_called_once_and_a_chain_stops(deployment: CeleryDeployment) -> None:
    bad = query.s(None, "?", settings={"top_p": 7.0}).on_error(deployment.shop.mourn.s())
    last = chain(bad, deployment.shop.shout.s()).apply_async()
    with pytest.raises(SkillFailed):
        last.get(timeout=SECONDS)
    until(lambda: deployment.redis.llen("ledger:mourn") > 0)
    [mourned] = deployment.ledger("mourn")
    assert mourned.startswith(f"{last.parent.id} invalid_argument")
    assert deployment.ledger("shout") == []


def test_a_failed_part_fails_the_chord(deployment: CeleryDeployment) -> None:
    parts = [query.s(None, "fine"), query.s(None, "?", settings={"top_p": 7.0})]
    body = chord(parts, deployment.shop.collect.s()).apply_async()
    with pytest.raises(SkillFailed):
        body.get(timeout=SECONDS)
    until(body.ready)
    assert isinstance(body.result, ChordError)
    assert "invalid_argument" in str(body.result)
    assert deployment.ledger("collect") == []


def test_a_task_between_ours_is_retried_by_celery(deployment: CeleryDeployment) -> None:
    whole = chain(query.s(None, "again"), deployment.shop.flaky.s(), deployment.shop.shout.s())
    assert whole.apply_async().get(timeout=SECONDS) == "AGAIN"
    assert deployment.ledger("flaky") == ["0", "1", "2"]
    assert deployment.ledger("shout") == ["AGAIN"]


def test_a_task_with_a_countdown_waits_for_its_time(deployment: CeleryDeployment) -> None:
    later = query.apply_async((None, "later"), countdown=1.5)
    now = query.delay(None, "now")
    assert now.get(timeout=SECONDS) == answer("now")
    assert deployment.redis.hget(f"stoop:{{0}}:job:{later.id}", "state") == b"delayed"
    assert later.get(timeout=SECONDS) == answer("later")


def test_a_task_that_expired_is_not_run(deployment: CeleryDeployment) -> None:
    with pytest.raises(TaskRevokedError, match="expired"):
        query.apply_async((None, "too late"), expires=-1).get(timeout=SECONDS)


def test_an_ignored_result_is_not_kept(deployment: CeleryDeployment) -> None:
    unwanted = query.apply_async((None, "unwanted"), ignore_result=True)
    until(lambda: deployment.redis.hget(f"stoop:{{0}}:job:{unwanted.id}", "state") == b"completed")
    query.delay(None, "after it").get(timeout=SECONDS)
    assert deployment.redis.get(f"celery-task-meta-{unwanted.id}") is None


def test_nothing_is_left_over(deployment: CeleryDeployment) -> None:
    until(lambda: deployment.redis.xlen("stoop:{0}:celery") == 0)
    until(lambda: deployment.redis.xlen("stoop:{0}:jobs:interactive") == 0)
