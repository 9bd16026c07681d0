"""Asks a question by Triton's client and prints the answer's words as they come.

    python ask.py HOST:PORT QUESTION [IMAGE]

IMAGE is a file or an address, such as s3://photos/cat.jpg. An API key comes from the variable STOOP_API_KEY. Ctrl-C
cancels the job.
"""

import json
import os
import queue
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as triton

MODEL = "moondream"  # the default model; `get_model_repository_index` lists the others


def tensor(name: str, value: str | bytes | bool) -> triton.InferInput:
    """Return an input of one element."""
    datatype, dtype = ("BOOL", np.bool_) if isinstance(value, bool) else ("BYTES", np.object_)
    made = triton.InferInput(name, [1], datatype)
    made.set_data_from_numpy(np.array([value.encode() if isinstance(value, str) else value], dtype=dtype))
    return made


def chunks(client: triton.InferenceServerClient, inputs: list[triton.InferInput]) -> Iterator[dict[str, Any]]:
    """Yield the chunks of an answer; the last one is `completed` and has all of it. Raises the server's error."""
    came: queue.Queue[tuple[triton.InferResult | None, Exception | None]] = queue.Queue()
    key = os.environ.get("STOOP_API_KEY")
    client.start_stream(
        callback=lambda result, error: came.put((result, error)),
        headers={"authorization": f"Bearer {key}"} if key else {},
    )
    try:
        client.async_stream_infer(MODEL, inputs)
        completed = False
        while not completed:
            result, error = came.get()
            if result is None:
                raise error or RuntimeError("the stream has ended")
            chunk = json.loads(result.as_numpy("TEXT_OUTPUT")[0])
            yield chunk
            completed = chunk["completed"]
    finally:
        client.stop_stream(cancel_requests=True)


def main(address: str, question: str, image: str | None = None) -> None:
    """Print the answer."""
    inputs = [tensor("SKILL", "query"), tensor("QUESTION", question), tensor("STREAM", True)]
    if image is not None:
        inputs.append(tensor("IMAGE", image if "://" in image else Path(image).read_bytes()))
    with triton.InferenceServerClient(address) as client:
        for chunk in chunks(client, inputs):
            print(chunk.get("chunk", ""), end="", flush=True)
    print(f"\n{chunk['finish_reason']}, {chunk['metrics']['output_tokens']} tokens, job {chunk['job_id']}")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(f"usage: {sys.argv[0]} HOST:PORT QUESTION [IMAGE]")
    try:
        main(*sys.argv[1:])
    except triton.InferenceServerException as error:
        sys.exit(str(error))
