"""The address of the queue: one Redis, a master that Sentinels name, or a Cluster. Parses only, never connects.

    redis://[user:password@]host[:port][/db]                      one server; rediss:// by TLS, unix:// by a socket
    redis+sentinel://[user:password@]host[:port],…/master[/db]    the Sentinels, and the master's name
    redis+cluster://[user:password@]host[:port],…                 some nodes of a Cluster

`rediss+sentinel://` and `rediss+cluster://` use TLS. These options may follow a `?`: `ssl_ca_certs`, `ssl_certfile` and
`ssl_keyfile` (paths); and `sentinel_username` and `sentinel_password`, if the Sentinels have a login of their own.
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
    """A parsed Redis URL. `address` is safe to show: it has no user, password or options.

    For one server, redis-py reads `url` itself. Otherwise `hosts` are the Sentinels or nodes, and `login` and
    `sentinel_login` are the arguments of redis-py's connections to the servers and to the Sentinels.
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
    """Parse any of the forms. Raises `ValueError` for others, with a message that repeats nothing of the URL."""
    try:
        parts = urlsplit(url)
        named_port = parts.port if parts.scheme in _SERVER_SCHEMES else None
        several = _SEVERAL.fullmatch(parts.scheme)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        # the error may quote part of the URL, and so part of a password
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
            raise ValueError("a Cluster has no databases: remove the part after the hosts from the Redis URL")
        hosts = _hosts(named, "cluster")
        return RedisUrl("cluster", url, _joined(hosts), hosts, login=login)
    _refuse(options, (*_SENTINEL, *(_TLS if tls else ())))
    hosts, (master, db) = _hosts(named, "sentinel"), _master(parts.path)
    sentinel_login = {key.removeprefix("sentinel_"): value for key, value in _only(options, _SENTINEL).items()}
    address = f"{master} of {_joined(hosts)}"
    return RedisUrl("sentinel", url, address, hosts, master, db, login, {**sentinel_login, **secured})


def _server(parts: SplitResult, port: int | None) -> str:
    """Return the address of one server. Refuse paths that redis-py would read as another server or database 0."""
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
        raise ValueError(f"the Redis URL accepts only these options here: {', '.join(known) or 'none'}")


def _joined(hosts: tuple[tuple[str, int], ...]) -> str:
    return ",".join(f"{name}:{port}" for name, port in hosts)
