"""Listens for gRPC beside HTTP, and ends with the gateway."""

import asyncio
import contextlib
import ssl
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import grpc

from stoop.errors import ConfigError
from stoop.gateway.gateway import Gateway
from stoop.gateway.grpc.rpcs import router
from stoop.gateway.options import ServeOptions

__all__ = ["check_certificate", "serving_grpc"]

_LAST_SECONDS: Final = 1.0
"""Time for the streams to pass on that the gateway ends."""

_MOST_CALLS: Final = 4096
"""Most calls in progress, streams included. gRPC has a task and a message for each; further ones are refused."""

_MOST_CALLS_OF_ONE: Final = 1024
"""Most calls in progress on one connection, so that one caller leaves room for others. Further ones wait in it."""


@contextlib.asynccontextmanager
async def serving_grpc(gateway: Gateway) -> AsyncGenerator[None, None]:
    """Serve inside the `with`, on its event loop. Raises `ConfigError` if the address cannot be listened on.

    When the gateway drains, callers are sent elsewhere at once, and the calls in progress have the gateway's grace.
    """
    server = grpc.aio.server(options=_settings(gateway.options), maximum_concurrent_rpcs=_MOST_CALLS)
    server.add_generic_rpc_handlers((router(gateway),))
    address = _listen(server, gateway.options)
    await server.start()
    print(f"stoop gateway answers gRPC on {address}", file=sys.stderr, flush=True)
    stopping = asyncio.create_task(_stop(server, gateway))
    try:
        yield
    finally:
        gateway.drain()
        await stopping


async def _stop(server: Any, gateway: Gateway) -> None:
    await gateway.drains.wait()
    await server.stop(gateway.options.drain_seconds + _LAST_SECONDS)


def _settings(options: ServeOptions) -> list[tuple[str, int]]:
    milliseconds = round(1000 * options.ping_seconds)
    return [
        # two gateways on one port would share its calls, and no caller could know which one answers
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", _MOST_CALLS_OF_ONE),
        ("grpc.max_receive_message_length", options.max_json_bytes),
        ("grpc.max_send_message_length", -1),
        # as the comments in streams over HTTP: proxies cut silent connections, and a caller that is gone is noticed
        ("grpc.keepalive_time_ms", milliseconds),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", min(milliseconds, 5_000)),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


def _listen(server: Any, options: ServeOptions) -> str:
    host, wanted = options.grpc_address
    shown = f"[{host}]" if ":" in host else host
    certificate, key = options.grpc_certificate, options.grpc_key
    try:
        if certificate is None or key is None:
            port = server.add_insecure_port(f"{shown}:{wanted}")
        else:
            pair = (key.read_bytes(), certificate.read_bytes())
            port = server.add_secure_port(f"{shown}:{wanted}", grpc.ssl_server_credentials([pair]))
    except RuntimeError:
        port = 0
    if not port:
        raise ConfigError(f"cannot listen on {shown}:{wanted} for gRPC: choose another --grpc")
    return f"{shown}:{port}"


def check_certificate(certificate: Path | None, key: Path | None) -> None:
    """Raise `ConfigError` unless both files are there and belong together, or neither is wanted."""
    if certificate is None and key is None:
        return
    if certificate is None or key is None:
        raise ConfigError("--grpc-certificate and --grpc-key belong together: give both, or neither")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"--grpc-certificate {certificate} and --grpc-key {key} cannot be used: {problem}") from None


def _no_password() -> str:
    raise ValueError("the key has a password, and must have none")
