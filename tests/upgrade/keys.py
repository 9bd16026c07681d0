"""The keys of a Redis as values that a file can hold, and back."""

from typing import Any

from redis.asyncio import Redis

from stoop_schemas import names

__all__ = ["Keys", "load", "save"]

Keys = dict[str, Any]
"""Every key's value: text, a hash as a dict, a set as a list, a sorted set as pairs, a stream as entries."""


async def save(redis: "Redis[str]") -> Keys:
    """Read all keys, except those of living workers' leases."""
    found: Keys = {}
    async for key in redis.scan_iter():
        if not key.startswith(names.live("")):
            found[key] = [(kind := await redis.type(key)), await _read(redis, key, kind)]
    return dict(sorted(found.items()))


async def load(redis: "Redis[str]", keys: Keys) -> None:
    """Write all keys, each stream with the group of the workers."""
    for key, (kind, value) in keys.items():
        match kind:
            case "string":
                await redis.set(key, value)
            case "hash":
                await redis.hset(key, mapping=value)
            case "set":
                await redis.sadd(key, *value)
            case "zset":
                await redis.zadd(key, dict(value))
            case "stream":
                for entry, fields in value["entries"]:
                    await redis.xadd(key, fields, id=entry)
                if value["groups"]:
                    await redis.xgroup_create(key, names.GROUP, id="0", mkstream=True)


async def _read(redis: "Redis[str]", key: str, kind: str) -> Any:
    match kind:
        case "string":
            return await redis.get(key)
        case "hash":
            return dict(sorted((await redis.hgetall(key)).items()))
        case "set":
            return sorted(await redis.smembers(key))
        case "zset":
            return await redis.zrange(key, 0, -1, withscores=True)
        case "stream":
            return {"entries": await redis.xrange(key), "groups": len(await redis.xinfo_groups(key))}
    raise ValueError(f"{key} is a {kind}")
