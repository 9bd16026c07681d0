"""The engine in a process of its own, so that its death costs no lease, no answer and no queue.

    supervisor.py  the front's side: starts one child after another, and settles a dead one's requests
    child.py       one child, as the front sees it
    protocol.py    the messages between the two
    frames.py      those messages on a socket and a pipe
    pixels.py      images in shared memory
    extents.py     the parts of that memory that are lent and free
    server.py      the child's side: runs the engine and answers
    build.py       builds the engine
    boot.py        loads the model and warms it up
    reading.py     the progress of loading, for the log and the front

The front runs in the event loop and imports no torch; the child owns the model and the GPU. This file imports
nothing, so that the front does not import the child.
"""

__all__: list[str] = []
