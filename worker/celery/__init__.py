"""Celery as a dialect of the wire: jobs that came as Celery messages are told of in Celery's own words.

    message.py   a Celery message read as a job, or refused
    note.py      what Celery is to be told of a job's end; kept in Redis from the moment the job has ended
    notes.py     those notes in Redis: each is one living worker's to tell
    finisher.py  tells them: a lone task's result itself, whatever goes on from there through the clerk
    clerk.py     the process beside the worker that has Celery in it, as the worker sees it
    desk.py      that process: Celery's tracer (tracer.py) and remote control (mailbox.py)

None of it is imported before the first Celery job, and Celery itself only by the process beside the worker.
"""

__all__: list[str] = []
