"""The address of the queue: one Redis, the master that Sentinels know of, or a Cluster. Parsing only, no connection.

    redis://[user:password@]host[:port][/db]                      one server; rediss:// by TLS, unix:// by a socket
    redis+sentinel://[user:password@]host[:port],…/master[/db]    the Sentinels, and the master's name
    redis+cluster://[user:password@]host[:port],…                 some nodes of a Cluster

`rediss+sentinel://` and `rediss+cluster://` are the same by TLS. After `?` may follow `ssl_ca_certs`, `ssl_certfile`
and `ssl_keyfile` (paths), and for Sentinels that ask for a login of their own `sentinel_username`, `sentinel_password`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

__all__ = ["RedisUrl", "read_redis_url"]

_SERVER_SCHEMES: Final = ("redis", "rediss", "unix")
_SEVERAL: Final = re.compile(r"(?P<scheme>rediss?)\+(?P<kind>sentinel|cluster)")
_HOST: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?")
_PORTS: Final = {"sentinel": 26379, "cluster": 6379}
_TLS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_SENTINEL: Final = ("sentinel_username", "sentinel_password")
_FORMS: Final = "redis://host:port/db, redis+sentinel://host:port,…/master or redis+cluster://host:port,…"


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """What a URL says; `address` is what a message may say of it: no user, no password, no options.

    For one server the URL is kept, for redis-py to read. Otherwise `hosts` are Sentinels or nodes, and `login` and
    `sentinel_login` are what redis-py's connections to the servers and to the Sentinels are made with.
    """

    kind: Literal["server", "sentinel", "cluster"]
    url: str = field(repr=False)
    address: str
    hosts: tuple[tuple[str, int], ...] = ()
    master: str = ""
    db: int = 0
    login: Mapping[str, Any] = field(default_factory=dict, repr=False)
    sentinel_login: Mapping[str, Any] = field(default_factory=dict, repr=False)


def read_redis_url(url: str) -> RedisUrl:
    """Read any of the forms; raises `ValueError` for others, which repeats nothing of the URL."""
    try:
        parts = urlsplit(url)
        named_port = parts.port if parts.scheme in _SERVER_SCHEMES else None
        several = _SEVERAL.fullmatch(parts.scheme)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        # the reason may quote a piece of the URL, and so of a password
        raise ValueError(f"the Redis URL cannot be read: write {_FORMS}") from None
    if parts.scheme in _SERVER_SCHEMES:
        return RedisUrl("server", url, _server(parts, named_port))
    if not several:
        raise ValueError(f"the Redis URL must be {_FORMS}")
    tls = several["scheme"] == "rediss"
    userinfo, _, named = parts.netloc.rpartition("@")
    secured: dict[str, Any] = {"ssl": True, **_only(options, _TLS)} if tls else {}
    login = {**_login(userinfo), **secured}
    if several["kind"] == "cluster":
        _refuse(options, _TLS if tls else ())
        if parts.path.strip("/") not in ("", "0"):
            raise ValueError("a Cluster has no databases: leave what follows its hosts out of the Redis URL")
        hosts = _hosts(named, "cluster")
        return RedisUrl("cluster", url, _said(hosts), hosts, login=login)
    _refuse(options, (*_SENTINEL, *(_TLS if tls else ())))
    hosts, (master, db) = _hosts(named, "sentinel"), _master(parts.path)
    sentinel_login = {key.removeprefix("sentinel_"): value for key, value in _only(options, _SENTINEL).items()}
    address = f"{master} of {_said(hosts)}"
    return RedisUrl("sentinel", url, address, hosts, master, db, login, {**sentinel_login, **secured})


def _server(parts: SplitResult, port: int | None) -> str:
    """Return the address of the one server; refuse what redis-py would read as another one, or as database 0."""
    if parts.scheme == "unix":
        if parts.netloc.rpartition("@")[2] or not parts.path.strip("/"):
            raise ValueError("the Redis URL must name the socket by its whole path: unix:///run/redis.sock")
        return parts.path
    if not parts.hostname:
        raise ValueError(f"the Redis URL names no host: write {parts.scheme}://host:port/db")
    if not re.fullmatch(r"/?|/\d{1,5}/?", parts.path, re.ASCII):
        raise ValueError(f"the Redis URL's database must be a number: write {parts.scheme}://host:port/db")
    return f"{parts.hostname}:{port or 6379}"


def _hosts(named: str, kind: str) -> tuple[tuple[str, int], ...]:
    hosts = []
    for host in named.split(","):
        match = _HOST.fullmatch(host)
        if not match or int(match["port"] or 1) not in range(1, 65536):
            raise ValueError("the Redis URL must name its hosts as host:port, comma-separated")
        hosts.append((match["name"].strip("[]"), int(match["port"] or _PORTS[kind])))
    return tuple(hosts)


def _master(path: str) -> tuple[str, int]:
    master, _, db = path.removeprefix("/").partition("/")
    if not master or not re.fullmatch(r"\d{0,5}", db):
        raise ValueError("the Redis URL must name the Sentinels' master: redis+sentinel://host:port,…/master[/db]")
    return unquote(master), int(db or 0)


def _login(userinfo: str) -> dict[str, str]:
    username, _, password = userinfo.partition(":")
    return {name: unquote(value) for name, value in {"username": username, "password": password}.items() if value}


def _only(options: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: options[name] for name in names if name in options}


def _refuse(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    if any(name not in known for name in options):
        raise ValueError(f"of the Redis URL's options only these are known here: {', '.join(known) or 'none'}")


def _said(hosts: tuple[tuple[str, int], ...]) -> str:
    return ",".join(f"{name}:{port}" for name, port in hosts)
