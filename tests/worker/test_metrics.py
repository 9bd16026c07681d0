from prometheus_client import generate_latest

from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.result import Metrics as Times
from stoop_schemas.result import Result
from stoop_schemas.skill import Output, Skill
from stoop_schemas.state import State
from stoop_worker.engine.stats import Stats, Totals
from stoop_worker.metrics import Metrics

DONE = Result(
    id="a", status=State.COMPLETED, skill=Skill.CAPTION, output=Output(caption="x"), metrics=Times(output_tokens=3)
)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_each_end_is_counted_by_its_outcome_and_tokens_only_for_an_answer() -> None:
    metrics = Metrics()
    failure = Failure.of(FailureCode.STORAGE_UNAVAILABLE, "x")
    metrics.settled(DONE, "completed", ours=True)
    metrics.settled(Result(id="b", status=State.FAILED, skill=Skill.CAPTION, failure=failure), "retry", ours=True)
    metrics.settled(Result(id="c", status=State.CANCELLED, skill=Skill.CAPTION), "cancelled", ours=True)
    metrics.settled(None, "crashed", ours=True)
    settled = "stoop_jobs_settled_total"
    assert value(metrics, settled, skill="caption", outcome="completed", code="") == 1
    assert value(metrics, settled, skill="caption", outcome="retry", code="storage_unavailable") == 1
    assert value(metrics, settled, skill="unknown", outcome="crashed", code="") == 1
    assert value(metrics, "stoop_tokens_total", kind="output") == 3
    assert value(metrics, "stoop_stage_seconds_count", stage="decode") == 1


def test_what_another_worker_took_over_is_counted_apart() -> None:
    metrics = Metrics()
    metrics.settled(DONE, "completed", ours=False)
    metrics.engine_fault()
    assert value(metrics, "stoop_jobs_lost_lease_total") == 1
    assert value(metrics, "stoop_jobs_settled_total", skill="caption", outcome="completed", code="") is None
    assert value(metrics, "stoop_engine_faults_total") == 1


def test_the_engines_figures_are_read_when_prometheus_asks() -> None:
    metrics, figures = Metrics(), dict[str, float]()
    metrics.watch_engine(lambda: figures)
    assert b"stoop_engine" not in generate_latest(metrics.registry).replace(b"stoop_engine_faults", b"")
    figures.update(Stats(Totals(steps=7), waiting=2, running=3, pages=40, pages_used=5, pages_idle=6).figures)
    text = generate_latest(metrics.registry).decode()
    assert "stoop_engine_steps_total 7.0" in text
    assert "stoop_engine_waiting 2.0" in text
    assert "stoop_engine_pages_idle 6.0" in text
