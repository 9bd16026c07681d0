"""One delivery, from claim to settlement.

consumer.py    claims no more deliveries than there are free permits, and starts their runs
executor.py    runs one delivery, from its bytes to its settlement
recordings.py  an audio address to the parts of a recording, within the same budgets
part_stream.py  those parts, while later ones are decoded
pipelines/     skills that take many of the engine's requests for one job
prepare.py     an image address to the engine's input, within budgets and by priority
adapters.py    the LoRA adapters of running jobs, in a folder of bounded size
fetch/         an image address to bytes
translate.py   the wire's values to the engine's and back
relay.py       delivers the engine's outputs to the coroutines that wait for them
publisher.py   gathers events and results for a few milliseconds, then writes them together
end_line.py    the log line of a delivery's end
spans/         the spans of a delivery, if traces are exported
output_store.py  large outputs in the object store, if jobs allow it
verdict.py     the result of a job whose end was decided in its lane
outcome.py     the outcomes of a delivery, and the failure code of each exception
retry.py       decides between another attempt and the end
backoff.py     the formula for growing, randomised waits
budget.py      lends slots and bytes by priority
unless.py      work that a future interrupts
outage.py      the shared view of a Redis outage, and its log lines
lease.py       renews the worker's lease while the engine makes progress
control.py     the channel that cancels running jobs
broker.py      the port to the queue, and its values
redis/         the port on Redis Streams
"""

__all__: list[str] = []
