"""The options of `stoop serve`; each is a variable too."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer

from stoop.errors import ConfigError

__all__ = ["ServeOptions"]


def _option(variable: str, help_text: str, **more: Any) -> Any:
    return typer.Option(envvar=f"STOOP_{variable}", help=help_text, show_envvar=False, **more)


@dataclass(frozen=True)
class ServeOptions:
    """The gateway's address, its callers, and its bounds. Sizes are in bytes, times in seconds."""

    host: Annotated[str, _option("GATEWAY_HOST", "Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, _option("GATEWAY_PORT", "Port; 0 takes a free one.", min=0, max=65535)] = 8000
    grpc: Annotated[
        str | None, _option("GATEWAY_GRPC", "Serve KServe's protocol by gRPC, too: HOST:PORT, or a port.")
    ] = None
    grpc_certificate: Annotated[
        Path | None, _option("GATEWAY_GRPC_CERTIFICATE", "Certificate chain for gRPC over TLS, as PEM.")
    ] = None
    grpc_key: Annotated[Path | None, _option("GATEWAY_GRPC_KEY", "Key of the certificate, as PEM.")] = None
    keys: Annotated[Path | None, _option("API_KEYS_FILE", "File of the API keys; see `stoop keys`.")] = None
    open: Annotated[bool, _option("GATEWAY_OPEN", "Accept requests without an API key.")] = False
    aliases: Annotated[
        str, _option("MODEL_ALIASES", "Other names of models: alias=name, comma-separated; alias= is the default.")
    ] = "moondream3-preview="
    cors_origins: Annotated[str, _option("CORS_ORIGINS", "Origins whose pages may call, comma-separated.")] = ""
    hold_seconds: Annotated[
        float, _option("STREAM_HOLD_SECONDS", "A stream's status waits this long for its first event.", min=0)
    ] = 10.0
    ping_seconds: Annotated[
        float, _option("STREAM_PING_SECONDS", "Silence after which a stream sends a comment.", min=0.1)
    ] = 10.0
    drain_seconds: Annotated[
        float, _option("GATEWAY_DRAIN_SECONDS", "Time for answers in progress after SIGTERM.", min=0)
    ] = 30.0
    max_json_bytes: Annotated[int, _option("MAX_JSON_BYTES", "Largest JSON body.", min=1024)] = 32 << 20
    max_audio_bytes: Annotated[int, _option("MAX_AUDIO_BYTES", "Largest audio file.", min=1024)] = 25 << 20
    max_file_bytes: Annotated[int, _option("MAX_FILE_BYTES", "Largest file of a batch.", min=1024)] = 200 << 20
    log_level: Annotated[str, _option("LOG_LEVEL", "debug, info, warning or error.")] = "info"

    @cached_property
    def alias_table(self) -> dict[str, str | None]:
        """The parsed `aliases`; None is the default model. Raises `ConfigError`."""
        pairs = [entry.strip().partition("=") for entry in self.aliases.split(",") if entry.strip()]
        for alias, equals, _ in pairs:
            if not alias or not equals:
                raise ConfigError(f"--aliases (STOOP_MODEL_ALIASES): {alias!r} must be alias=name or alias=")
        return {alias: name or None for alias, _, name in pairs}

    @cached_property
    def grpc_address(self) -> tuple[str, int]:
        """The host and the port of `grpc`; a port alone is on `host`. Raises `ConfigError`."""
        host, _, port = (self.grpc or "").rpartition(":")
        if not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
            problem = f"--grpc (STOOP_GATEWAY_GRPC) must be HOST:PORT, [IPv6]:PORT or a port, not {self.grpc!r}"
            raise ConfigError(problem)
        return host.strip("[]") or self.host, int(port)

    @cached_property
    def origins(self) -> tuple[str, ...]:
        """The parsed `cors_origins`."""
        return tuple(origin.strip() for origin in self.cors_origins.split(",") if origin.strip())
