"""Requests that make no sense: each ends with a status of its own, and nothing of it is in the log."""

import asyncio
import contextlib
import os
import random
import struct
from pathlib import Path
from typing import Any

import grpc
from grpc.aio import insecure_channel

from stoop.gateway.grpc.messages import GRPC_NAME, message_class
from stoop.gateway.grpc.rpcs import RPCS, STREAM
from stoop.gateway.kserve.inputs import INPUTS
from tests.examples.conftest import Deployment
from tests.gateway.conftest import GRPC, SECONDS, StartGateway
from tests.gateway.test_keys import keys

REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "1000"))
MARK = "MaRk"
FAULTS = {"INTERNAL", "UNKNOWN"}
Request = message_class("ModelInferRequest")
Response = message_class("ModelStreamInferResponse")


class Nonsense:
    """Messages drawn from one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def element(self, name: str) -> bytes:
        known = [b"query", b"caption", b"chat", b"tell 1", b"[]", b"{}", b"", b"\xff", MARK.encode()]
        if name == "SKILL":
            known = [b"query", b"caption", b"detect", b"point", b"chat", b"embed", MARK.encode()]
        return self.chance.choice(known)

    def request(self) -> bytes:
        chance = self.chance
        made = Request(model_name=chance.choice(["moondream", "streaming", MARK, ""]), id=MARK)
        made.model_version = chance.choice(["", "", "1", MARK])
        made.parameters["timeout"].int64_param = chance.choice([1, 1, 1, -1])  # microseconds
        if chance.random() < 0.1:
            made.parameters[MARK].string_param = MARK
        if chance.random() < 0.1:
            made.outputs.add(name=chance.choice(["TEXT_OUTPUT", MARK]))
        names = {"SKILL", "QUESTION", *chance.choices([*INPUTS, MARK], k=chance.randrange(4))}
        for name in sorted(names):
            datatype = (
                INPUTS[name].datatype if name in INPUTS and chance.random() < 0.9 else chance.choice(["FP64", MARK])
            )
            shape = [1] if chance.random() < 0.9 else chance.choice([[-1], [0], [1 << 62, 4], [2, 2]])
            made.inputs.add(name=name, datatype=datatype, shape=shape)
            made.raw_input_contents.append(self._raw(name, datatype))
        if chance.random() < 0.05:
            del made.raw_input_contents[0]
        return self._torn(made.SerializeToString())

    def _raw(self, name: str, datatype: str) -> bytes:
        text = self.element(name)
        if datatype != "BYTES":
            return self.chance.randbytes(self.chance.choice([1, 4, 4, 8]))
        return struct.pack("<I", len(text) + (self.chance.random() < 0.05)) + text

    def _torn(self, written: bytes) -> bytes:
        if self.chance.random() < 0.1:
            return written[: self.chance.randrange(len(written))]
        return self.chance.randbytes(40) if self.chance.random() < 0.05 else written


async def test_no_request_fails_the_gateway_or_writes_content_to_its_log(
    streaming_deployment: Deployment, start_gateway: StartGateway, tmp_path: Path
) -> None:
    file = tmp_path / "keys.json"
    secret = keys("new", "fuzz", "--file", str(file))
    gateway = start_gateway(streaming_deployment, "--keys", str(file), *GRPC)
    nonsense = Nonsense(5)

    async def once(channel: Any, number: int) -> None:
        metadata = [
            ("authorization", f"Bearer {secret if number % 10 else MARK}"),
            ("idempotency-key", f"{MARK} {number}"),
        ]
        if number % 11 == 0:
            metadata += [("traceparent", MARK), ("x-request-id", f"{MARK} /")]
        # two of three infer, by one response or by a stream
        rpc = (RPCS[-1], STREAM, RPCS[number // 3 % len(RPCS)])[number % 3]
        if rpc is not STREAM:
            call = channel.unary_unary(f"/{GRPC_NAME}/{rpc.name}")(nonsense.request(), metadata=metadata)
            assert (await call.code()).name not in FAULTS, (rpc.name, await call.details())
            return
        asked = [nonsense.request() for _ in range(2)]
        # the server's log has the status: a stream that it ends while this client writes is INTERNAL to the client
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            async for each in channel.stream_stream(f"/{GRPC_NAME}/{rpc.name}")(iter(asked), metadata=metadata):
                assert Response.FromString(each).infer_response.id in (MARK, "")

    async with asyncio.timeout(SECONDS * max(1, REQUESTS // 600)), insecure_channel(gateway.grpc) as channel:
        for start in range(0, REQUESTS, 20):
            await asyncio.gather(*(once(channel, start + i) for i in range(20)))
    found = {line["status"] for line in gateway.lines}
    assert {"OK", "UNAUTHENTICATED", "INVALID_ARGUMENT", "NOT_FOUND", "DEADLINE_EXCEEDED"} <= found
    assert not found & FAULTS
    assert len(gateway.lines) >= REQUESTS
    assert MARK not in gateway.log and secret[-20:] not in gateway.log
    assert "unforeseen" not in gateway.log and "Traceback" not in gateway.log
