"""`python -m stoop_worker.celery` runs the sidecar. A worker starts it on demand; only it imports Celery."""

from stoop_worker.celery.sidecar_main import serve

__all__: list[str] = []

if __name__ == "__main__":
    serve()
