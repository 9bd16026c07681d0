"""The GPU worker: claims jobs, runs them in one resident engine, publishes events and results.

main.py          the composition root: builds every part from the configuration, and runs them
command.py       the command line of `stoop worker`
config.py        the configuration, from flags and `STOOP_*` variables
config_fields.py the types of its settings
jobs/            one delivery, from claim to settlement
images/          bytes to pixels
audio/           bytes to frames of sound
engine/          requests to outputs, on the device
engine_process/  the engine in a process of its own
models/          the model families
local/           the engine in the caller's process, without a queue
inspection/      the facts about a checkpoint, for `stoop inspect`
gpu_workers/     one worker for each GPU of this host, under one parent
kernels/         the GPU kernels
celery/          jobs that came as Celery messages
media_parts.py   builds the fetcher, the decoding threads and their budgets
adapter_parts.py builds the fetcher of adapters, if they come from an address
registration.py  the worker's entry in the registry of workers
health.py        decides whether the worker is alive, started and ready
endpoints.py     serves metrics and probes over HTTP
metrics.py       every metric, for Prometheus
figures.py       the engine's figures on their way to the metrics
tracing.py       exports traces, if OpenTelemetry's variables ask for them
logs.py          the format of the log
allocator.py     makes the C allocator return large blocks to the system
garbage.py       keeps the garbage collector away from objects that stay loaded
vital.py         the parts whose end must end the worker
shutdown.py      the signals that end a worker
errors.py        every exception that the worker raises on purpose
"""

__all__: list[str] = []
