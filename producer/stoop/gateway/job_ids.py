"""Job ids that identify their tenant, so that no tenant reads another's job and no replica keeps a list.

An id is 80 random bits and 48 bits of a digest over them and the tenant. Another tenant's id therefore fails the check,
and an id cannot be changed so that it passes and still names the same job.
"""

import hashlib
import secrets
from typing import Final

from stoop_schemas import names

__all__ = ["is_of", "job_id_from", "new_job_id"]

_RANDOM_BYTES: Final = 10
_DIGEST_BYTES: Final = 6


def new_job_id(tenant: str | None) -> str:
    """Return a new id for a job of this tenant."""
    return _job_id(secrets.token_bytes(_RANDOM_BYTES), tenant)


def job_id_from(seed: bytes, tenant: str | None) -> str:
    """Return the id for this seed, the same each time."""
    return _job_id(hashlib.blake2b(seed, digest_size=_RANDOM_BYTES).digest(), tenant)


def is_of(job_id: str, tenant: str | None) -> bool:
    """Return True if a gateway made this id for a job of this tenant."""
    if not names.is_generated(job_id):
        return False
    drawn, digest = job_id[: 2 * _RANDOM_BYTES], job_id[2 * _RANDOM_BYTES : 2 * (_RANDOM_BYTES + _DIGEST_BYTES)]
    return _digest(bytes.fromhex(drawn), tenant) == digest


def _job_id(drawn: bytes, tenant: str | None) -> str:
    return f"{drawn.hex()}{_digest(drawn, tenant)}-0"


def _digest(drawn: bytes, tenant: str | None) -> str:
    suffix = b"" if tenant is None else b":" + tenant.encode()
    return hashlib.blake2b(drawn + suffix, digest_size=_DIGEST_BYTES).hexdigest()
