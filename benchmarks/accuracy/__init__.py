"""Accuracy of the demo's models on scenes and on speech, and of any model on charts.

run.py          the command: draws scenes, asks, marks
engine.py       asks the engine directly
queue.py        asks through Redis, S3 and a worker
charts.py       the command for questions about charts, through the queue
charts_data.py  their rows, from a folder or Parquet
relaxed.py      their measure
parity.py       the command that compares a checkpoint with the reference code
reference.py    finds and loads that code
openai_whisper.py  compares transcripts with openai-whisper's
"""

__all__: list[str] = []
