"""Every page of a pool walked and compared with the pool's counters: too slow for a worker, not for a test."""

from stoop_worker.engine.pages import PagePool

__all__ = ["audit"]


def audit(pool: PagePool) -> None:
    """Assert that every page is either free, once, or held, and that the pool counts them rightly."""
    pool.check()
    free = set(pool._free)
    assert len(free) == pool.free, "a page is free twice"
    used = {page for page in range(pool.count) if pool._uses[page]}
    idle = {page for page in range(pool.count) if pool._keeps[page]} - used
    assert not free & (used | idle), "a page is free and held"
    assert len(free) + len(used) + len(idle) == pool.count, "a page is lost"
    assert (len(used), len(idle)) == (pool.used, pool.idle), "pages are miscounted"
