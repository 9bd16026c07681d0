"""The engine child of a worker; started by the worker, never by hand."""

from stoop_worker.garbage import without_collection

__all__: list[str] = []

if __name__ == "__main__":
    with without_collection():
        from stoop_worker.engine_process.build import build
        from stoop_worker.engine_process.server import serve_engine
    serve_engine(build)
