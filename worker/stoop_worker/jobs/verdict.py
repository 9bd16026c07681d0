"""The result of a job whose end was decided in its lane, so that it does not run."""

from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.state import State
from stoop_worker.jobs import outcome as outcomes
from stoop_worker.jobs.translate import ended

__all__ = ["decided"]


def decided(job: Job, verdict: outcomes.Cancelled | outcomes.Expired | outcomes.Dead) -> Result:
    """Return the result of the job."""
    match verdict:
        case outcomes.Cancelled():
            return ended(job.id, job, State.CANCELLED, None)
        case outcomes.Expired():
            return ended(job.id, job, State.EXPIRED, None)
        case outcomes.Dead(failure):
            return ended(job.id, job, State.FAILED, failure)
