"""The client: submit jobs, follow them, wait for them.

async_client.py    `AsyncClient`: jobs with their images, and Moondream's methods on top
blocking.py        `Client`: the same without an event loop of the caller's
loop_thread.py     the event loop thread behind `Client`
build_job.py       arguments to a checked `Job`, and a `Result` to the shapes of Moondream's client
vectors.py         vectors as they travel
job_client.py      jobs without images: submit, follow, wait, cancel
submission.py      submits many jobs, each with its own id or its own refusal; waits where a lane is full
window.py          runs any number of coroutines, a limited number at a time
gathering.py       jobs through a window: submits each and waits for its result
pulling.py         iterates a blocking source of jobs in its own thread
events.py          one job's events, complete and in order
text_stream.py     those events as pieces of text
speech_methods.py  the methods for recordings
segment_stream.py  those events as segments of a transcript
outage.py          tolerates an outage of Redis or the object store for a limited time
states.py          the states of jobs, as the queue holds them
stored_output.py   outputs that a worker has put into the object store
models.py          the live models, from the workers' records
unserved.py        warns once of a lane that no live worker serves
sending.py         the trace of a job from its sending on
transport.py       the port to the queue, and its values
"""

__all__: list[str] = []
