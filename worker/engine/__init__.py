"""Requests to outputs, in one thread, with no wire and no asyncio.

`request.py` is the border; `engine.py` is the loop; `thread.py` runs it. Nothing is gathered here, so that who
needs only the border does not import torch.
"""

__all__: list[str] = []
