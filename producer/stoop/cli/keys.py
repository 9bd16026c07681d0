"""`stoop keys`: make, list and revoke the gateway's API keys. The file holds only digests of them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from stoop.cli.exit_codes import exit_on_error
from stoop.cli.skill_options import with_options
from stoop.errors import ConfigError, NotFound
from stoop.gateway.key_options import KeyOptions
from stoop.gateway.keys import ApiKey, KeyFile, digest, new_secret, read_keys, write_keys

__all__ = ["keys"]

keys = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

_File = Annotated[Path, typer.Option("--file", envvar="STOOP_API_KEYS_FILE", help="The file of the keys.")]
_Name = Annotated[str, typer.Argument(help="The key's id: A-Z a-z 0-9 . _ : -")]


@keys.callback()
def _about() -> None:
    """API keys of the gateway. A running gateway follows the file within a second."""


@keys.command("new")
@with_options
def new_key(name: _Name, file: _File, *, options: KeyOptions) -> None:
    """Make a key and print it once; only its digest is stored."""
    with exit_on_error(as_json=False):
        stored = read_keys(file) if file.exists() else KeyFile()
        if name in stored.keys:
            raise ConfigError(f"there is a key {name!r}: revoke it first, or choose another id")
        secret = new_secret(name)
        write_keys(file, KeyFile({**stored.keys, name: _key(name, secret, options)}))
    typer.echo(secret)


@keys.command("list")
def list_keys(file: _File) -> None:
    """List the keys as JSON lines, without their digests."""
    with exit_on_error(as_json=False):
        stored = read_keys(file)
    for name, key in stored.keys.items():
        shown = msgspec.to_builtins(msgspec.structs.replace(key, id=""))
        del shown["sha256"]
        expired = {"expired": True} if key.is_expired(datetime.now(UTC)) else {}
        typer.echo(msgspec.json.encode({"id": name, **shown, **expired}).decode())


@keys.command("revoke")
def revoke_key(name: _Name, file: _File) -> None:
    """Delete a key; its holder is refused from then on."""
    with exit_on_error(as_json=False):
        stored = read_keys(file)
        if name not in stored.keys:
            raise NotFound(f"there is no key {name!r} in {file}")
        write_keys(file, KeyFile({other: key for other, key in stored.keys.items() if other != name}))


def _key(name: str, secret: str, options: KeyOptions) -> ApiKey:
    expires = None if options.days is None else datetime.now(UTC) + timedelta(days=options.days)
    fields: dict[str, Any] = {
        "sha256": digest(secret),
        "tenant": options.tenant,
        "scopes": _split(options.scopes),
        "lanes": _split(options.lanes),
        "models": _split(options.models),
        "expires": expires,
        "requests_per_minute": options.requests_per_minute,
        "tokens_per_minute": options.tokens_per_minute,
        "concurrent": options.concurrent,
        "id": name,
    }
    try:
        return msgspec.convert(fields, ApiKey)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the key is wrong: {error}") from None


def _split(named: str) -> list[str]:
    return [each.strip() for each in named.split(",") if each.strip()]
