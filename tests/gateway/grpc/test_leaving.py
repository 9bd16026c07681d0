"""Callers that leave while their jobs are submitted, a moment that no real connection meets on demand."""

import asyncio

import pytest

from stoop.client.async_client import AsyncClient
from stoop.config import ProducerConfig
from stoop.gateway.gateway import Gateway
from stoop.gateway.keys import OPEN
from stoop.gateway.options import ServeOptions
from tests.contract.queues import new_job
from tests.producer.scripted import SlowToSubmit

pytest.importorskip("grpc")

from stoop.gateway.grpc.infer import Inference
from stoop.gateway.grpc.messages import message_class
from stoop.gateway.grpc.rpc_call import CallState, RpcCall


@pytest.mark.parametrize("comes_back", [False, True])
async def test_a_job_is_cancelled_unless_its_caller_can_come_back(comes_back: bool) -> None:
    config, transport = ProducerConfig(), SlowToSubmit()
    gateway = Gateway(config, ServeOptions(open=True))
    gateway.client = AsyncClient(config, transport=transport)
    metadata = {"idempotency-key": "mine"} if comes_back else {}
    inference = Inference(message_class("ModelInferRequest")(), new_job(stream=True), "query")
    async with gateway.running():
        texts = inference.texts(RpcCall(gateway, metadata, OPEN, CallState("request")))
        asking = asyncio.ensure_future(anext(texts))
        async with asyncio.timeout(10):
            await transport.begun.wait()
        asking.cancel()
        await asyncio.wait({asking})
        assert asking.cancelled()
    assert transport.cancelled == ([] if comes_back else [inference.job.id])
