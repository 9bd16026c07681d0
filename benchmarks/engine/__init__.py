"""Speed and memory of the engine alone.

run.py              the command: closed loops, open loops, decode rates
bench.py            the flags, and the engine that they describe
engine_run.py       requests through the engine, as the worker sends them
decode_rate.py      tokens a second while all requests decode
workloads.py        the questions
photos.py           photo-like JPEGs
photo_requests.py   questions about photos, as requests
image_processes.py  prepares images in other processes
full_size.py        models with random weights
random_adapters.py  LoRA adapters with random weights
check.py            compares answers with the plain model
plain_model.py      Moondream in plain torch
memory.py           memory over many requests
loading.py          time and host memory of loading a checkpoint
texts.py            vectors of texts on a CPU, against transformers
profile.py          GPU time by stage
trace.py            reads a profiler's trace
"""

__all__: list[str] = []
