"""The measured cost of one job, and the answers a second of a GPU; `PERFORMANCE.md` has the commands and the dates."""

from dataclasses import dataclass

__all__ = ["BULK", "GPU_RATES", "STREAMED", "WAITED_FOR", "JobCost"]


@dataclass(frozen=True, slots=True)
class JobCost:
    """One job's cost to Redis.

    `redis_us` is CPU time in microseconds where 64 jobs are in flight at a worker, the dearer case, because calls then
    serve one or two jobs each. `result_bytes` and `state_bytes` are kept as long as a result, `log_bytes` for the log's
    time. `network_bytes` go in and out.
    """

    redis_us: float
    result_bytes: int
    state_bytes: int
    log_bytes: int
    network_bytes: int


# python -m benchmarks.queue.redis_cost
WAITED_FOR = JobCost(redis_us=206.0, result_bytes=700, state_bytes=320, log_bytes=0, network_bytes=4_400)
STREAMED = JobCost(redis_us=635.0, result_bytes=700, state_bytes=320, log_bytes=5_700, network_bytes=16_800)
BULK = JobCost(redis_us=211.0, result_bytes=710, state_bytes=320, log_bytes=0, network_bytes=4_500)

# jobs a second of one NVIDIA H200, each job about a new photo of nine crops or its like
GPU_RATES = {
    "moondream2, 3 tokens": 67.4,
    "moondream2 in float8, 3 tokens": 102.7,
    "moondream2, caption of 128 tokens": 46.7,
    "moondream3, 3 tokens": 55.0,
    "qwen3-vl-4b, 30 tokens": 71.7,
    "llama-3.2-1b, 850 tokens in, 3 out": 370.0,
}
