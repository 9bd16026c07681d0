"""The meaning of Redis's errors for the queue, and the advice for each: one table, read by producers and workers alike.

A client library may turn the code word of a reply into an exception class and drop the word, and Redis 6 wraps an error
that a script met in a sentence of its own. So an error is known by the name of one of its classes, or else by a code
word in its text. No client library is imported here.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = ["REPLIES", "Meaning", "Reply", "read_error"]


class Meaning(Enum):
    """The meaning of an error for the caller; each value begins the message."""

    AWAY = "cannot be reached"
    """Wait, or look at the address: nothing of use answers there."""
    OUTAGE = "cannot serve now"
    """Wait: the same call may work later."""
    REFUSAL = "refuses this client"
    """Log in otherwise, or change the user's rights."""
    MISMATCH = "holds no queue of this version"
    """Use another Redis, or another kind of URL."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One kind of error: its `words` in a text, the `classes` that redis-py makes of it, and `advice` for a person."""

    words: tuple[str, ...]
    classes: tuple[str, ...]
    meaning: Meaning
    advice: str

    def explain(self, address: str, error: Exception) -> str:
        """Return one line about the error of the Redis at `address`, with the advice."""
        text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        return f"Redis at {address} {self.meaning.value} ({text}): {self.advice}"


_OUTAGES: Final = (
    Reply(("LOADING",), ("BusyLoadingError",), Meaning.OUTAGE, "it is still loading its data, so wait"),
    Reply(("OOM",), ("OutOfMemoryError",), Meaning.OUTAGE, "its memory is full, so raise its maxmemory"),
    Reply(
        ("READONLY",),
        ("ReadOnlyError",),
        Meaning.OUTAGE,
        "it is a replica; wait if it is failing over, or else name the master in STOOP_REDIS_URL",
    ),
    Reply(("MISCONF",), (), Meaning.OUTAGE, "it cannot save to its disk, so make room there; its own log says more"),
    Reply(("NOREPLICAS",), (), Meaning.OUTAGE, "too few replicas follow it, so wait or lower min-replicas-to-write"),
    Reply(("MASTERDOWN",), ("MasterDownError",), Meaning.OUTAGE, "it is a replica without its master, so wait"),
    Reply(("CLUSTERDOWN",), ("ClusterDownError",), Meaning.OUTAGE, "wait until each slot of the cluster has a master"),
    Reply(
        # to a script, and of redis-py when it was sent to and fro
        ("TRYAGAIN", "non local key", "TTL exhausted"),
        ("TryAgainError",),
        Meaning.OUTAGE,
        "the cluster is moving these keys, so wait",
    ),
    Reply(("BUSY",), (), Meaning.OUTAGE, "a script runs in it for too long, so wait or end that with SCRIPT KILL"),
    Reply(("UNBLOCKED",), (), Meaning.OUTAGE, "it has just become a replica, so wait for the new master"),
    Reply(
        ("max number of clients reached",),
        (),
        Meaning.OUTAGE,
        "all of its connections are in use, so close some or raise its maxclients",
    ),
    Reply(
        ("No master found",),
        ("MasterNotFoundError",),
        Meaning.AWAY,
        "check the Sentinels, and the name of the master in STOOP_REDIS_URL",
    ),
    Reply(
        ("CERTIFICATE_VERIFY_FAILED",),
        (),
        Meaning.AWAY,
        "its certificate is not trusted, so name your authority with ?ssl_ca_certs=… in STOOP_REDIS_URL",
    ),
)
_REFUSALS: Final = (
    Reply(
        ("NOAUTH", "WRONGPASS", "invalid password"),
        ("AuthenticationError", "AuthorizationError", "AuthenticationWrongNumberOfArgsError"),
        Meaning.REFUSAL,
        "check the user and the password in STOOP_REDIS_URL",
    ),
    Reply(
        # the second is from a script in Redis 7, the third from one in Redis 6
        ("NOPERM", "ACL failure in script", "The user executing the script can't run this command"),
        ("NoPermissionError",),
        Meaning.REFUSAL,
        "give its user the rights that deploy/redis/users.acl lists",
    ),
    Reply(("DENIED",), (), Meaning.REFUSAL, "set a password in Redis and in STOOP_REDIS_URL"),
)
_MISMATCHES: Final = (
    Reply(
        ("MOVED", "ASK", "CROSSSLOT"),
        ("MovedError", "AskError", "ClusterCrossSlotError"),
        Meaning.MISMATCH,
        "it is part of a Cluster, so begin STOOP_REDIS_URL with redis+cluster://",
    ),
)

REPLIES: Final = (*_OUTAGES, *_REFUSALS, *_MISMATCHES)
"""Every reply that has a meaning of its own."""

_NO_REPLY: Final = Reply((), (), Meaning.AWAY, "is Redis running there? STOOP_REDIS_URL says where")
_OTHER: Final = Reply(
    (),
    (),
    Meaning.MISMATCH,
    "give the queue a Redis of 6.2 or newer in which no other program writes keys that begin with stoop:",
)
_BY_CLASS: Final = {name: reply for reply in REPLIES for name in reply.classes}
_BY_WORD: Final = {word: reply for reply in REPLIES for word in reply.words}
_WORD: Final = re.compile(rf"\b({'|'.join(map(re.escape, _BY_WORD))})\b")


def read_error(error: Exception) -> Reply:
    """Return the meaning of an exception of redis-py or of the network below it."""
    classes = [kind.__name__ for kind in type(error).__mro__]
    for name in classes:
        if name in _BY_CLASS:
            return _BY_CLASS[name]
    if found := _WORD.search(str(error)):
        return _BY_WORD[found[0]]
    return _OTHER if "ResponseError" in classes else _NO_REPLY
