"""The gateway under load: added latency, a ramp until a threshold breaks, and many open streams.

__main__.py      `python -m benchmarks.gateway latency|grpc|ramp|streams|memory|pages|triton`
stack.py         Redis, a worker with the echo engine, and a gateway
echo_engine.py   an engine that answers at once
echo_worker.py   its worker
http_client.py   one connection of a load generator
latency.py       the same questions by `AsyncClient` and by HTTP
grpc_latency.py  the same by gRPC, and requests a second
ramp.py          stages of more and more callers
memory.py        memory over many requests
streams.py       open streams, and what they cost everybody else
triton.py        the same questions by a real Triton
pages.py         the playground and the dashboard in Chromium
ramp_report.py   a ramp as a page with plots
"""
