"""NVIDIA's `tritonclient`, as it is, against a server of KServe's inference protocol: `run_tritonclient.py CHECK`.

KSERVE_GRPC is the server's host and port, KSERVE_HTTP its address if it speaks HTTP too.
"""

import json
import os
import queue
import sys
import time
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

GRPC = os.environ["KSERVE_GRPC"]
HTTP = os.environ.get("KSERVE_HTTP") or None
GATE = Path(os.environ["STOOP_GATE"])
STREAMS = 64
WORDS = "".join(["word-0", *(f" word-{i}" for i in range(1, 12))])
SECONDS = 100.0
KINDS = {"STREAM": bool, "REASONING": bool, "TRUNCATE": bool, "MAX_TOKENS": np.int32, "MAX_OBJECTS": np.int32}
KINDS |= {"TEMPERATURE": np.float32, "TOP_P": np.float32, "DIMENSIONS": np.int32}


def tensors(inputs):
    """Return the inputs as `InferInput`s; texts and bytes are BYTES."""
    made = []
    for name, value in inputs.items():
        values = value if isinstance(value, list) else [value]
        kind = KINDS.get(name, np.object_)
        array = np.array([v.encode() if isinstance(v, str) else v for v in values], dtype=kind)
        tensor = grpcclient.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(array)
        made.append(tensor)
    return made


class Stream:
    """One stream, whose responses are read as Moondream's sample client reads them."""

    def __init__(self, **headers):
        self.client = grpcclient.InferenceServerClient(GRPC)
        self.responses = queue.Queue()
        self.client.start_stream(callback=partial(self._take, self.responses), headers=headers)

    @staticmethod
    def _take(responses, result, error):
        responses.put(error or result)

    def begin(self, **inputs):
        self.client.async_stream_infer("moondream", tensors(inputs), request_id="r1", enable_empty_final_response=True)
        return self

    def next(self):
        found = self.responses.get(timeout=SECONDS)
        if isinstance(found, InferenceServerException):
            raise found
        text = found.as_numpy("TEXT_OUTPUT")
        return None if text is None else json.loads(text[0])

    def all(self):
        """Return every response up to the one without `completed: false`."""
        found = [self.next()]
        while not found[-1].get("completed", True):
            found.append(self.next())
        return found

    def close(self, *, cancel=False):
        self.client.stop_stream(cancel_requests=cancel)
        self.client.close()


def ask(headers=(), **inputs):
    """Return the responses of one request."""
    stream = Stream(**dict(headers)).begin(**inputs)
    try:
        return stream.all()
    finally:
        stream.close()


def answers():
    """Print the answers to the requests of a file, whole and, where it asks for it, streamed."""
    asked = json.loads(Path(os.environ["KSERVE_REQUESTS"]).read_text())
    for name, inputs in asked.items():
        for file in {"IMAGE", "AUDIO"} & inputs.keys():
            inputs[file] = Path(inputs[file]).read_bytes()
        *_, answer = ask(**inputs)
        assert answer["request_id"] == "r1", answer
        print("ANSWER", json.dumps([name, answer]))


def streams():
    """64 streams at once; none may end before all have begun."""
    begun = [Stream().begin(SKILL="query", QUESTION=f"tell 12 until {GATE}", STREAM=True) for _ in range(STREAMS)]
    firsts = [stream.next() for stream in begun]
    assert not GATE.exists() and all(WORDS.startswith(first["chunk"]) for first in firsts), firsts
    GATE.touch()
    for stream, first in zip(begun, firsts, strict=True):
        found = [first, *stream.all()]
        assert "".join(each["chunk"] for each in found) == found[-1]["answer"] == WORDS
        # the bare last response of a decoupled model
        assert stream.next() is None
        stream.close()


def crowd():
    """64 callers leave at once, wherever their requests are; the server and the engine's rows go on."""
    unending = {"SKILL": "query", "QUESTION": f"tell 4 until {GATE}", "STREAM": True}
    for stream in [Stream().begin(**unending) for _ in range(STREAMS)]:
        stream.close(cancel=True)
    print("freed after a crowd left:", free_row())


def cancels():
    """A caller that leaves frees the only row of the engine, so that the next request is answered."""
    stream = Stream().begin(SKILL="query", QUESTION=f"tell 4 until {GATE}", STREAM=True)
    assert stream.next()["chunk"].startswith("word-0")
    stream.close(cancel=True)
    print("freed after cancel:", free_row())
    if HTTP is None:
        return
    body = {"SKILL": "query", "QUESTION": f"tell 4 until {GATE}", "STREAM": True}
    with post("generate_stream", body) as response:
        assert b"word-0" in response.readline()
    print("freed after a dropped connection:", free_row())


def free_row():
    began = time.perf_counter()
    [answer] = ask(SKILL="query", QUESTION="tell 12")
    assert answer["answer"] == WORDS and not GATE.exists()
    return f"the next request was answered in {1000 * (time.perf_counter() - began):.0f} ms"


def errors():
    """The message of an error has our code; the status of gRPC is there for streams that ask for it."""
    wrong = {
        "INVALID_ARGUMENT": [{"SKILL": "query"}, {"SKILL": "caption", "IMAGE": b"\xff\xd8 no JPEG"}],
        "UNIMPLEMENTED": [{"SKILL": "segment", "OBJECT": "cat", "IMAGE": "s3://stoop/cat.jpg"}, {"SKILL": "dance"}],
        "NOT_FOUND": [{"SKILL": "query", "QUESTION": "?", "MODEL": "no-such-model"}],
    }
    for code, inputs in [(code, inputs) for code, requests in wrong.items() for inputs in requests]:
        plain = error_of(**inputs)
        asked = error_of({"triton_grpc_error": "true"}, **inputs)
        assert plain.message() == asked.message()
        assert asked.status() == f"StatusCode.{code}", asked
        print(f"  {asked}")


def error_of(headers=(), **inputs):
    try:
        found = ask(headers, **inputs)
    except InferenceServerException as error:
        return error
    raise AssertionError(f"{inputs} was answered by {found}")


def routes():
    """The HTTP routes of Triton: one response, and server-sent events."""
    with post("generate", {"SKILL": "query", "QUESTION": "tell 12"}) as response:
        assert json.loads(json.load(response)["TEXT_OUTPUT"])["answer"] == WORDS
    with post("generate_stream", {"SKILL": "query", "QUESTION": "tell 12", "STREAM": True}) as response:
        events = [json.loads(line[6:]) for line in response if line.startswith(b"data: ")]
    chunks = [json.loads(event["TEXT_OUTPUT"]) for event in events]
    assert "".join(chunk["chunk"] for chunk in chunks) == chunks[-1]["answer"] == WORDS
    try:
        post("generate", {"SKILL": "query"}).close()
    except urllib.error.HTTPError as error:
        assert error.code == 400 and b"malformed: query needs a question" in error.read()
    else:
        raise AssertionError("a query without a question was answered")


def post(route, body):
    request = urllib.request.Request(
        f"{HTTP}/v2/models/moondream/{route}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    return urllib.request.urlopen(request, timeout=SECONDS)


if __name__ == "__main__":
    for check in sys.argv[1:]:
        started = time.perf_counter()
        globals()[check]()
        print(f"  {check:12} {time.perf_counter() - started:5.1f} s", flush=True)
