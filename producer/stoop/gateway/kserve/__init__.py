"""Stoop in the terms of KServe's inference protocol, version 2: tensors in, JSON texts out. Shared by Triton and gRPC.

inputs.py        the table of inputs, and the output
ask.py           from inputs to a request to the queue
answer.py        from a job's events to the texts of `TEXT_OUTPUT`
codes.py         from errors to the codes of Triton and gRPC
triton_model.py  the model that Triton's Python backend runs
"""

__all__: list[str] = []
