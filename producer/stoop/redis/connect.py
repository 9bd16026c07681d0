"""Makes a redis-py client from the queue's URL, for one server, the Sentinels' master or a Cluster.

Thousands of tasks may wait on one client: they share a few connections, in turn.
"""

import asyncio
import random
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import ExponentialWithJitterBackoff

from stoop.errors import ConfigError
from stoop_schemas.redis_url import RedisUrl, read_redis_url

__all__ = ["Client", "close", "connect", "make_connection", "read_url"]

Client = Redis | RedisCluster

_TIMEOUT_SECONDS = 10.0
_CONNECT_SECONDS = 5.0
_CONNECTIONS = 16


class _SentinelPool(SentinelConnectionPool, BlockingConnectionPool):
    """A pool that asks the Sentinels where the master is, and whose users wait for a connection."""


class _Redirected:
    """A node that a command is sent on to while its slot moves there.

    `ASKING` counts for the next command of its connection, but redis-py sends the two on any two connections.
    """

    def __init__(self, node: ClusterNode) -> None:
        self._node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    async def execute_command(self, *command: Any, **_: Any) -> Any:
        if command == ("ASKING",):
            return None  # sent with the command itself
        connection = self._node.acquire_connection()
        try:
            await connection.send_packed_command(connection.pack_commands([("ASKING",), command]))
            await connection.read_response()
            return await self._node.parse_response(connection, command[0])
        finally:
            self._node.release(connection)


class _Cluster(RedisCluster):
    """A Cluster whose users take turns, because its own pools raise when they are empty."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._permits = asyncio.Semaphore(_CONNECTIONS)

    async def execute_command(self, *command: Any, **options: Any) -> Any:
        async with self._permits:
            return await super().execute_command(*command, **options)

    def get_node(self, host: str | None = None, port: int | None = None, node_name: str | None = None) -> Any:
        """Return a node; a name finds the target of a redirection, even if it is unknown because it has no slot yet."""
        node = super().get_node(host, port, node_name)
        if node_name is None:
            return node
        if node is None:
            host, _, number = node_name.rpartition(":")
            options: Any = self.get_connection_kwargs()
            node = ClusterNode(host, int(number), **options)
            self.nodes_manager.set_nodes(self.nodes_manager.nodes_cache, {node_name: node})
        return _Redirected(node)


def read_url(url: str) -> RedisUrl:
    """Read the URL; raises a `ConfigError` that does not repeat it."""
    try:
        return read_redis_url(url)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def connect(url: RedisUrl) -> Client:
    """Make a client, which connects at its first command and repeats each a few times."""
    options: dict[str, Any] = {
        "protocol": 2,
        "socket_timeout": _TIMEOUT_SECONDS,
        "socket_connect_timeout": _CONNECT_SECONDS,
        # a command line may hold bytes outside UTF-8: a name with them is one that the queue does not know
        "encoding_errors": "surrogatepass",
        "retry": Retry(ExponentialWithJitterBackoff(base=0.05, cap=1.0), 4),
    }
    pool: dict[str, Any] = {"max_connections": _CONNECTIONS, "timeout": None}
    match url.kind:
        case "sentinel":
            sentinel = Sentinel(url.hosts, sentinel_kwargs={**options, **url.sentinel_login}, **options, **url.login)  # type: ignore[no-untyped-call]
            master: Redis = sentinel.master_for(url.master, connection_pool_class=_SentinelPool, db=url.db, **pool)
            return master
        case "cluster":
            nodes = [ClusterNode(host, port) for host, port in url.hosts]
            return _Cluster(startup_nodes=nodes, **options, **url.login)
    try:
        return Redis.from_pool(BlockingConnectionPool.from_url(url.url, **pool, **options))
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


async def close(client: Client) -> None:
    """Disconnect for good, from the Sentinels too."""
    await client.aclose()
    if isinstance(client, Redis) and isinstance(client.connection_pool, SentinelConnectionPool):
        for sentinel in client.connection_pool.sentinel_manager.sentinels:
            await sentinel.aclose()
