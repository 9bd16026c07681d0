"""Accuracy of the demo's model.

run.py     the command: draws scenes, asks, marks
engine.py  asks the engine directly
queue.py   asks through Redis, S3 and a worker
"""

__all__: list[str] = []
