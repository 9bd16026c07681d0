"""The engine in a process of its own, so that what kills it kills no lease, no answer and no queue.

The front (`engine_process.py`, `child.py`) runs in the event loop and knows no torch; the child (`serving.py`,
`__main__.py`) owns the model and the GPU. Values go down a Unix socket, pixels lie in memory that both see,
and outputs come up a pipe. Nothing is gathered here, so that the front does not import the child.
"""

__all__: list[str] = []
