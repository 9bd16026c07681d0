"""KServe's inference protocol by gRPC, with Triton's extensions for streams. Needs `pip install 'stoop[grpc]'`.

server.py       listens, beside HTTP
rpcs.py         the table of RPCs
rpc.py          one row of it
calls.py        runs a call under its key and limits, with its log line, metrics and span
rpc_call.py     one call in progress
about.py        what is ready, and what it takes
model_names.py  the models that callers may name
infer.py        from a request to a job and its answer
stream.py       streams of requests and responses
tensors.py      tensors as Python's values
messages.py     the protocol's messages
metrics.py      the metrics of gRPC

`kserve.proto` is the protocol for people and compilers, `kserve.binpb` the same compiled.
"""

__all__: list[str] = []
