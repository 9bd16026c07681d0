"""`stoop demo`: a real Redis, a real S3 server, a real worker, and a burst of jobs through all of them."""

from producer.demo.run import run_demo

__all__ = ["run_demo"]
