"""The gateway: Moondream's and OpenAI's HTTP interface over the queue. Needs `pip install 'stoop[gateway]'`.

The server runs the application, the application has the routes, a route answers a call, and the call has the state of
the gateway, which knows none of them.

server.py         runs the application under uvicorn
app.py            the application: the table of routes under keys
routes.py         the table of routes
route.py          one row of it
options.py        the options of `stoop serve`
gateway.py        the state that all calls share: client, keys, limits, models and the end
admitted.py       a call in progress, whatever the protocol it came by
call.py           one HTTP request in progress
wait.py           a wait that ends when its caller leaves
access_log.py     request ids and one line of the log for each request
metrics.py        the metrics of HTTP
traces.py         a span for each request, if traces are exported
other_pages.py    refuses web pages of other sites where no key is asked for
limits.py         the limits of API keys
keys.py           the file of API keys
key_options.py    the options of `stoop keys new`
errors.py         from failures to HTTP
body.py           reads bodies within their bounds
images.py         the image of a request
ask.py            the content of a request to the queue
submission.py     from a request to a job in its lane
job_ids.py        ids that show a job's tenant
answer.py         a plain answer
stream.py         a streamed answer
follower.py       follows one job
pieces.py         a job's events as pieces of text
moondream.py      Moondream's routes
moondream_answer.py  an answer in Moondream's shape
chat_request.py   OpenAI's chat request, and the parameters it refuses
chat.py           OpenAI's chat completions
texts.py          embeddings and rerank
audio.py          OpenAI's audio routes
audio_request.py  the form of a recording, checked
languages.py      the English names of languages
forms.py          multipart forms within their bounds
jobs.py           native jobs and their events
models.py         the names of models
model_routes.py   OpenAI's list of models
files.py          files of batches in the object store
file_routes.py    OpenAI's files
batches.py        OpenAI's batches
batch_run.py      runs batches
batch_lines.py    the lines of a batch
health.py         `/healthz`, `/readyz` and `/metrics`
openapi.py        the OpenAPI document
documents.py      shows it, as JSON and as a page
queue_watch.py    one look at the queue a second for all viewers
dead_causes.py    dead letters grouped by cause, one look a second for all viewers
pages/            the playground and the dashboard
kserve/           KServe's tensors as requests and answers, for gRPC and for Triton
grpc/             KServe's protocol by gRPC
"""

__all__: list[str] = []
