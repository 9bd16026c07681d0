"""Makes a redis-py client from the queue's URL, for one server, the Sentinels' master or a Cluster."""

import random
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException

from stoop_schemas.redis_url import RedisUrl, read_redis_url
from stoop_worker.errors import ConfigError

__all__ = ["Client", "close", "connect", "disconnect", "make_connection", "read_url"]

Client = Redis | RedisCluster

_SENTINEL_SECONDS = 2.0


class _Cluster(RedisCluster):
    """A Cluster that may be sent to a node that it does not know yet; redis-py fails there with an AttributeError."""

    def get_node(self, host: str | None = None, port: int | None = None, node_name: str | None = None) -> Any:
        """Return the node, or ask the others for all nodes before the next command."""
        node = super().get_node(host, port, node_name)
        if node is None:
            self._initialize = True
            raise RedisClusterException(f"a slot moves to {node_name or host}, which is new here")
        return node


def read_url(url: str) -> RedisUrl:
    """Read the URL; raises a `ConfigError` that does not repeat it."""
    try:
        return read_redis_url(url)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def connect(url: RedisUrl, *, timeout: float) -> Client:
    """Make a client, which connects at its first command and repeats none; `timeout` is in seconds."""
    options: dict[str, Any] = {
        "protocol": 2,
        "socket_timeout": timeout,
        "socket_connect_timeout": min(timeout, 5.0),
        # after a hidden repetition, a call could not distinguish its own trace from another's
        "retry": Retry(NoBackoff(), 0),
    }
    match url.kind:
        case "sentinel":
            # so that one that hangs leaves time to ask the others
            asked = {**options, "socket_timeout": min(timeout, _SENTINEL_SECONDS), **url.sentinel_login}
            sentinel = Sentinel(url.hosts, sentinel_kwargs=asked, **options, **url.login)  # type: ignore[no-untyped-call]
            master: Redis = sentinel.master_for(url.master, db=url.db)
            return master
        case "cluster":
            nodes = [ClusterNode(host, port) for host, port in url.hosts]
            return _Cluster(startup_nodes=nodes, **options, **url.login)
    try:
        return Redis.from_url(url.url, **options)
    except ValueError:
        # the reason may quote a piece of the URL, and so of a password
        raise ConfigError("the Redis URL cannot be read: write redis://[user:password@]host[:port][/db]") from None


def make_connection(client: Client) -> Any:
    """Return a new connection that is the caller's own. In a Cluster it is to any node, because a message reaches them
    all.
    """
    if isinstance(client, Redis):
        return client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
    node = random.choice(client.get_nodes() or list(client.nodes_manager.startup_nodes.values()))
    return node.connection_class(**node.connection_kwargs)


async def disconnect(client: Client) -> None:
    """Drop every connection, even one on which a command blocks; the next command reconnects."""
    if isinstance(client, Redis):
        await client.connection_pool.disconnect()
    else:
        await client.aclose()


async def close(client: Client) -> None:
    """Disconnect for good, from the Sentinels too."""
    await client.aclose()
    await disconnect(client)
    if isinstance(client, Redis) and isinstance(client.connection_pool, SentinelConnectionPool):
        for sentinel in client.connection_pool.sentinel_manager.sentinels:
            await sentinel.aclose()
