"""Jobs for a worker that runs only what a holder of a key has signed."""

import dataclasses

from stoop_schemas.signature import SigningKeys
from tests.security.case import MARK, Case, job

__all__ = ["KEYS", "SIGNED"]


def keys(entry: str) -> SigningKeys:
    read = SigningKeys.read([entry])
    assert read is not None
    return read


KEYS = keys(f"web:{MARK}-and-sixteen-bytes")
STRANGER = keys("web:another secret, just as long")
UNKNOWN = keys(f"batch:{MARK}-and-sixteen-bytes")


def signed(name: str, ends: str, by: SigningKeys) -> Case:
    made = job(name, ends)
    return dataclasses.replace(made, packed=by.sign(made.packed))


def altered(name: str, before: bytes, after: bytes) -> Case:
    made = signed(name, "malformed", KEYS)
    assert before in made.packed
    return dataclasses.replace(made, packed=made.packed.replace(before, after))


SIGNED: list[Case] = [
    signed("a job signed with the key", "completed", KEYS),
    job("a job that is not signed", "malformed"),
    signed("a job signed with another secret", "malformed", STRANGER),
    signed("a job signed with an unknown key", "malformed", UNKNOWN),
    altered("a signed job with another question", b"What?", b"Why?!"),
    altered("a signed job with a field behind the signature", b'"}', b'","tenant":"acme"}'),
    altered("a signature of zeros", b'"signature":"web:', b'"signature":"web:' + b"0" * 64),
    dataclasses.replace(
        signed("a signed job under the id of another", "malformed", KEYS),
        job_id="another-victim",
        fields={"id": b"another-victim"},
    ),
]
