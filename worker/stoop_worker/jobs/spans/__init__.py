"""The spans of a delivery. Imported only if traces are exported, because some modules need OpenTelemetry.

job_spans.py   makes the spans of a delivery after its end
choice.py      decides which jobs are traced
attributes.py  the spans' attributes
stages.py      the stages of a run
finished.py    makes spans that have already ended
"""

__all__: list[str] = []
