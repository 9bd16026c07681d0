"""The threads for images: the end of the pool waits for none that decodes."""

import threading

from stoop_worker.images import image_pool


def test_leaving_does_not_wait_for_a_thread_that_decodes() -> None:
    begun, go_on = threading.Event(), threading.Event()
    with image_pool(1) as pool:
        running = pool.submit(lambda: begun.set() or go_on.wait(60))
        waiting = pool.submit(lambda: None)
        begun.wait()
    assert not running.done()
    assert waiting.cancelled()
    go_on.set()
    assert running.result() is True
