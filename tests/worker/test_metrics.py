import pytest
from prometheus_client import generate_latest

from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.result import Metrics as Times
from stoop_schemas.result import Result
from stoop_schemas.skill import Output, Skill
from stoop_schemas.state import State
from stoop_worker.engine.stats import Stats, Totals
from stoop_worker.figures import Figures, Histogram
from stoop_worker.metrics import ENGINE_METRICS, Ending, Metrics

TIMES = Times(
    output_tokens=3,
    queue_time_ms=100,
    fetch_time_ms=20,
    image_time_ms=30,
    prefill_time_ms=40,
    decode_time_ms=8,
    ttft_ms=50,
)
DONE = Result(id="a", status=State.COMPLETED, skill=Skill.CAPTION, output=Output(caption="x"), metrics=TIMES)
STATS = Stats(Totals(steps=7), waiting=2, running=3, pages=40, pages_used=5, pages_idle=6)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def ending(result: Result | None, outcome: str, *, ours: bool = True) -> Ending:
    return Ending("bulk", outcome, result, 0.25, ours)


def test_each_end_is_counted_by_its_outcome_and_tokens_only_for_an_answer() -> None:
    metrics = Metrics()
    failure = Failure.of(FailureCode.STORAGE_UNAVAILABLE, "x")
    metrics.settled(ending(DONE, "completed"))
    metrics.settled(ending(Result(id="b", status=State.FAILED, skill=Skill.CAPTION, failure=failure), "retry"))
    metrics.settled(ending(Result(id="c", status=State.CANCELLED, skill=Skill.CAPTION), "cancelled"))
    metrics.settled(ending(None, "crashed"))
    settled = "stoop_jobs_settled_total"
    assert value(metrics, settled, skill="caption", outcome="completed", code="") == 1
    assert value(metrics, settled, skill="caption", outcome="retry", code="storage_unavailable") == 1
    assert value(metrics, settled, skill="unknown", outcome="crashed", code="") == 1
    assert value(metrics, "stoop_tokens_total", kind="output") == 3
    assert value(metrics, "stoop_stage_seconds_count", stage="decode") == 1


@pytest.mark.parametrize(
    ("name", "labels", "seconds"),
    [
        ("stoop_job_seconds", {"skill": "caption", "lane": "bulk"}, 0.25),
        ("stoop_queue_seconds", {"lane": "bulk"}, 0.1),
        # waiting, fetching, decoding the image, prefill
        ("stoop_time_to_first_token_seconds", {"skill": "caption", "lane": "bulk"}, 0.2),
        # the two tokens after the first
        ("stoop_time_per_output_token_seconds", {"skill": "caption"}, 0.004),
        ("stoop_stage_seconds", {"stage": "prefill"}, 0.04),
    ],
)
def test_the_times_of_an_answer_are_distributed_in_seconds(name: str, labels: dict[str, str], seconds: float) -> None:
    metrics = Metrics()
    metrics.settled(ending(DONE, "completed"))
    assert value(metrics, f"{name}_count", **labels) == 1
    assert value(metrics, f"{name}_sum", **labels) == pytest.approx(seconds)


def test_an_answer_without_tokens_has_no_time_of_a_token() -> None:
    metrics = Metrics()
    vectors = Result(id="a", status=State.COMPLETED, skill=Skill.EMBED, output=Output(embeddings=[]))
    metrics.settled(ending(vectors, "completed"))
    assert value(metrics, "stoop_job_seconds_count", skill="embed", lane="bulk") == 1
    assert value(metrics, "stoop_time_to_first_token_seconds_count", skill="embed", lane="bulk") is None
    assert value(metrics, "stoop_time_per_output_token_seconds_count", skill="embed") is None


def test_jobs_lost_to_another_worker_are_counted_apart() -> None:
    metrics = Metrics()
    metrics.settled(ending(DONE, "completed", ours=False))
    metrics.engine_fault()
    assert value(metrics, "stoop_jobs_lost_lease_total") == 1
    assert value(metrics, "stoop_jobs_settled_total", skill="caption", outcome="completed", code="") is None
    assert value(metrics, "stoop_engine_faults_total") == 1


def test_the_engines_figures_are_read_when_prometheus_asks() -> None:
    metrics, figures = Metrics(), dict[str, float | Histogram]()
    metrics.watch_engine(lambda: figures)
    assert b"stoop_engine_steps" not in generate_latest(metrics.registry)
    figures.update(STATS.figures)
    figures["a figure of a newer engine"] = 1.0
    text = generate_latest(metrics.registry).decode()
    assert "stoop_engine_steps_total 7.0" in text
    assert "stoop_engine_waiting 2.0" in text
    assert "stoop_engine_pages_idle 6.0" in text


def test_every_figure_of_the_engine_has_a_declared_metric() -> None:
    assert STATS.figures.keys() == ENGINE_METRICS.keys()


def test_the_engines_histograms_have_cumulative_buckets_and_one_family() -> None:
    steps = Histogram((0.01, 0.1)).with_value(0.01).with_value(0.05).with_value(3.0)
    figures: Figures = {"prefill_step_seconds": steps, "decode_step_seconds": Histogram((0.01, 0.1))}
    metrics = Metrics()
    metrics.watch_engine(lambda: figures)
    step = "stoop_engine_step_seconds"
    for edge, count in (("0.01", 1), ("0.1", 2), ("+Inf", 3)):
        assert value(metrics, f"{step}_bucket", kind="prefill", le=edge) == count
    assert value(metrics, f"{step}_sum", kind="prefill") == pytest.approx(3.06)
    assert value(metrics, f"{step}_count", kind="decode") == 0
    assert generate_latest(metrics.registry).decode().count(f"# TYPE {step} histogram") == 1


def test_the_build_names_version_model_and_device() -> None:
    metrics = Metrics()
    metrics.loaded("moondream2", "cuda")
    samples = [one for family in metrics.registry.collect() for one in family.samples]
    [sample] = [one for one in samples if one.name == "stoop_build_info"]
    assert (sample.labels["model"], sample.labels["device"], sample.value) == ("moondream2", "cuda", 1)
    assert sample.labels["version"]
