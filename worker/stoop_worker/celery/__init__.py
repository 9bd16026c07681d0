"""Celery as a dialect of the wire: a job that came as a Celery message ends the way Celery expects.

    dialect.py       the Celery side of a worker, imported by every worker
    message.py       reads a Celery message as a job, or refuses it
    ending.py        the end of a job in Celery's terms, stored in Redis in the step that settles the job
    outbox.py        the stored endings in Redis; each belongs to one living worker
    outbox_relay.py  delivers them: a lone task's result directly, everything else through the sidecar
    sidecar.py       the worker's end of the pipe to the sidecar process
    sidecar_main.py  the sidecar process
    tracer.py        in the sidecar: finishes tasks through Celery's own tracer
    mailbox.py       in the sidecar: answers Celery's remote control
    __main__.py      `python -m stoop_worker.celery` starts the sidecar

Only `dialect.py` is imported before the first Celery job, and only the sidecar imports Celery itself.
"""

__all__: list[str] = []
