"""The wire contract between producers and workers, as frozen values. No I/O, except the export of traces.

job.py            one unit of work
skill.py          the values of a skill: its settings and the shapes of its answers
settings.py       the rules for a job's settings
unknown.py        refuses the names of fields and settings that do not exist
chat.py           the messages of a chat, in OpenAI's form
chat_images.py    the images in a caller's messages, before they have addresses
response_format.py  the form of an answer's text
texts.py          the limits of texts to embed and to rank
transcript.py     the words of a recording, and the options of a transcript
skills.py         the table of skills: each one's inputs and answers
event.py          the events of a running job
result.py         the result that is kept after a job has ended
failure.py        the failure codes, and which of them are retryable
worker.py         a worker's record in the registry of workers
state.py          the states of a job
codec.py          values to bytes and back, as JSON
traceparent.py    the trace context of a job
sampling.py       the decisions about traces that are known without asking OpenTelemetry
new_spans.py      begins spans of traces that may be kept
tracing.py        exports traces by OpenTelemetry, if its variables ask for them
version.py        the version that every message carries
signature.py      signs and verifies jobs
names.py          every key and channel in Redis
redis_url.py      parses the address of the queue
redis_replies.py  the meaning of each Redis error, and what to do about it
store_errors.py   the meaning of the object store's error codes
address.py        parses the address of an image in an object store
allowed.py        the rule for image locations by tenant
celery.py         the rules that both sides of the Celery dialect share
export.py         writes the contract as JSON Schema to `json/`
"""

__all__: list[str] = []
