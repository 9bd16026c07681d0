"""The stages of one run, as spans of a trace: their names, and their times worked back from the run's end."""

from typing import Final, NamedTuple

from stoop_schemas.result import Metrics

__all__ = ["Stage", "stages_of"]

_NS: Final = 1_000_000  # nanoseconds in a millisecond


class Stage(NamedTuple):
    """One stage of a run; times are Unix nanoseconds."""

    name: str
    start: int
    end: int


def stages_of(metrics: Metrics, claimed: int, answered: int) -> list[Stage]:
    """Return the stages of a run between its claim and its answer (Unix ns), in their order.

    The worker measures durations, so each stage ends where the next one begins: generate, which holds prefill and
    decode, ends with the answer. Nothing begins before the claim. Several files are fetched at once, and their times
    are one sum; it is cut at the claim.
    """

    def before(end: int, milliseconds: float) -> int:
        return max(claimed, end - round(milliseconds * _NS))

    first_token = before(answered, metrics.decode_time_ms)
    generate = before(first_token, metrics.ttft_ms)
    image = before(generate, metrics.image_time_ms)
    stages = [
        Stage("fetch", before(image, metrics.fetch_time_ms), image),
        Stage("image", image, generate),
        Stage("generate", generate, answered),
        Stage("prefill", max(generate, before(first_token, metrics.prefill_time_ms)), first_token),
        Stage("decode", first_token, answered),
    ]
    return [stage for stage in stages if stage.end > stage.start]
