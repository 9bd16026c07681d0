"""Asks Triton a question and prints the words of the answer as they come: ask.py QUESTION [IMAGE]."""

import argparse
import json
import queue
from pathlib import Path

import numpy as np
import tritonclient.grpc as triton

MODEL = "moondream"


def tensor(name: str, value: str | bytes | bool) -> triton.InferInput:
    """Return one input of shape [1]."""
    datatype, dtype = ("BOOL", bool) if isinstance(value, bool) else ("BYTES", np.object_)
    content = value.encode() if isinstance(value, str) else value
    made = triton.InferInput(name, [1], datatype)
    made.set_data_from_numpy(np.array([content], dtype=dtype))
    return made


def ask(client: triton.InferenceServerClient, question: str, image: Path | None) -> None:
    """Print the answer of a streamed query. Raises the server's error."""
    responses: queue.Queue[tuple[triton.InferResult | None, Exception | None]] = queue.Queue()
    inputs = [tensor("SKILL", "query"), tensor("QUESTION", question), tensor("STREAM", True)]
    if image is not None:
        inputs.append(tensor("IMAGE", image.read_bytes()))
    client.start_stream(callback=lambda result, error: responses.put((result, error)))
    client.async_stream_infer(MODEL, inputs)
    while True:
        result, error = responses.get()
        if error is not None:
            raise error
        response = json.loads(result.as_numpy("TEXT_OUTPUT")[0])
        print(response["chunk"], end="", flush=True)
        if response["completed"]:
            print()
            return


def main() -> None:
    """Read the arguments and ask."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("question")
    parser.add_argument("image", type=Path, nargs="?")
    parser.add_argument("--url", default="localhost:8001", help="host and port of Triton's gRPC")
    arguments = parser.parse_args()
    client = triton.InferenceServerClient(arguments.url)
    try:
        ask(client, arguments.question, arguments.image)
    finally:
        # whoever leaves early cancels the job
        client.stop_stream(cancel_requests=True)
        client.close()


if __name__ == "__main__":
    main()
