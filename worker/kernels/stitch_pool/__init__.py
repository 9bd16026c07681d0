from worker.kernels.stitch_pool.reference import pool, stitch, stitch_pool

__all__ = ["pool", "stitch", "stitch_pool"]
