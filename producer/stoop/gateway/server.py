"""Runs the gateway under uvicorn, until SIGTERM or Ctrl-C."""

import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import structlog
import uvicorn

from stoop.config import ProducerConfig
from stoop.errors import ConfigError
from stoop.gateway.app import make_app
from stoop.gateway.gateway import Gateway
from stoop.gateway.options import ServeOptions

__all__ = ["check_free", "serve"]


def serve(config: ProducerConfig, options: ServeOptions, *, on_listening: Callable[[str], None] | None = None) -> None:
    """Serve until a signal; raise `ConfigError` if the options cannot work.

    `on_listening` is called with the address, such as `http://127.0.0.1:8000`, before the first request is served.
    """
    _configure_logs(options.log_level)
    gateway = Gateway(config, options)
    _check_grpc(options)
    listening = _listen(options.host, options.port)
    settings = uvicorn.Config(
        make_app(gateway),
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=round(options.drain_seconds) + 1,
        # the address of a proxy's client is written nowhere
        proxy_headers=False,
    )
    host, port = listening.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    print(f"stoop gateway listens on {address}", file=sys.stderr, flush=True)
    server = _Server(settings, gateway)
    for number in (signal.SIGINT, signal.SIGTERM):
        # for a signal before uvicorn sets its own handlers; and uvicorn raises the signal again when it has drained,
        # but a gateway that has drained has ended well
        signal.signal(number, server.stop)
    if on_listening is not None:
        on_listening(address)
    # everything until here stays, and the requests leave few circles behind: looking for them took a tenth of the time
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)
    server.run([listening])


class _Server(uvicorn.Server):
    """Passes the first signal on to the gateway."""

    def __init__(self, settings: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(settings)
        self._gateway = gateway

    def stop(self, sig: int, frame: FrameType | None) -> None:
        """End the server as soon as it has started; does nothing once it has ended."""
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal; the second one ends the process at once, as uvicorn does."""
        self._gateway.drain()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the application after the second signal too, which uvicorn does not: its log would show a traceback."""
        await super().shutdown(sockets)
        if self.force_exit:
            await self.lifespan.shutdown()


def _check_grpc(options: ServeOptions) -> None:
    """Raise `ConfigError` for faults that would otherwise appear only once the event loop runs."""
    if options.grpc is None:
        if options.grpc_certificate is not None or options.grpc_key is not None:
            raise ConfigError("--grpc-certificate and --grpc-key need --grpc HOST:PORT")
        return
    try:
        from stoop.gateway.grpc.server import check_certificate
    except ImportError:
        raise ConfigError("--grpc (STOOP_GATEWAY_GRPC) needs gRPC: pip install 'stoop[grpc]'") from None
    check_certificate(options.grpc_certificate, options.grpc_key)
    host, port = options.grpc_address
    _listen(host, port, "--grpc").close()


def check_free(host: str, port: int) -> None:
    """Raise `ConfigError` if another program listens there, before anything that takes long is started."""
    _listen(host, port).close()


def _listen(host: str, port: int, flag: str = "--port") -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048, reuse_port=False)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another {flag}") from None
    listening.set_inheritable(True)
    return listening


def _configure_logs(level: str) -> None:
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ConfigError(f"--log-level (STOOP_LOG_LEVEL) must be debug, info, warning or error, not {level!r}")
    logging.basicConfig(
        level=max(number, logging.WARNING), stream=sys.stderr, format="%(levelname)s %(name)s %(message)s"
    )
    renderer: Any = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
