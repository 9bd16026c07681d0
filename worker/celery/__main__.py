"""`python -m worker.celery`: the process beside a worker that has Celery in it; the worker starts it when needed."""

from worker.celery.desk import serve

__all__: list[str] = []

if __name__ == "__main__":
    serve()
