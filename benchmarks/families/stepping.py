"""Requests that begin at once: all are prepared before the first step, and the engine is stepped until they end."""

import time
from collections.abc import Sequence

from benchmarks.engine.engine_run import Record
from stoop_worker.engine.request import Aborted, Finished, Output, Refused, Request
from stoop_worker.engine.thread import AnyEngine

__all__ = ["Stepping"]


class Stepping:
    """Steps an engine in the caller's thread; it must be idle."""

    def __init__(self, engine: AnyEngine) -> None:
        self._engine: AnyEngine = engine

    def together(self, asks: Sequence[Request]) -> list[Record]:
        """Run requests; return their records in order."""
        return [record for record, _ in self._run(asks)]

    def answers(self, asks: Sequence[Request]) -> list[Finished]:
        """Run requests; return their answers in order."""
        return [finished for _, finished in self._run(asks)]

    def _run(self, asks: Sequence[Request]) -> list[tuple[Record, Finished]]:
        prepared = [self._engine.prepare(ask) for ask in asks]
        now = time.perf_counter()
        records = {ask.id: Record(now, now) for ask in asks}
        for each in prepared:
            self._engine.add(each)  # type: ignore[arg-type]  # each engine takes what it prepared itself
        ended: dict[str, Finished] = {}
        while not self._engine.idle:
            outputs = self._engine.step()
            ended |= _note(outputs, records, time.perf_counter())
        return [(records[ask.id], ended[ask.id]) for ask in asks]


def _note(outputs: Sequence[Output], records: dict[str, Record], now: float) -> dict[str, Finished]:
    """Write the time of outputs into the records, and return the answers that they end."""
    ended: dict[str, Finished] = {}
    for name in {output.id for output in outputs}:
        records[name].output_times.append(now)
    for output in outputs:
        match output:
            case Finished(usage=usage):
                record = records[output.id]
                record.ended, record.tokens, record.ttft = now, usage.output_tokens, usage.ttft_ms / 1e3
                record.input_tokens, record.cached_tokens = usage.input_tokens, usage.cached_tokens
                ended[output.id] = output
            case Refused() | Aborted():
                raise RuntimeError(f"the engine did not run a request: {output}")
    return ended
