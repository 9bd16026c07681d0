import hashlib
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoop_schemas.codec import pack, unpack_job
from stoop_schemas.failure import FailureCode, Rejected
from stoop_schemas.job import Job
from stoop_schemas.signature import SigningKeys
from tests.schemas.strategies import any_jobs
from tests.schemas.test_golden import JOBS, read

SECRET, OTHER = "a secret of the golden job", "another secret, as long"


def keys(*entries: str) -> SigningKeys:
    read = SigningKeys.read(entries)
    assert read is not None
    return read


KEYS = keys(f"web-1:{SECRET}")


def refusal(packed: bytes, by: SigningKeys = KEYS) -> str:
    with pytest.raises(Rejected) as raised:
        unpack_job(packed, by)
    assert raised.value.failure.code is FailureCode.MALFORMED
    assert SECRET not in raised.value.failure.message
    return raised.value.failure.message


@given(any_jobs())
def test_a_signed_job_is_accepted(job: Job) -> None:
    signed = KEYS.sign(pack(job))
    got = unpack_job(signed, KEYS)
    assert got.signature is not None
    assert got.signature.startswith("web-1:")
    assert pack(got) == signed


def test_the_golden_job_has_the_signature_of_the_contract() -> None:
    packed = read("both", "job-signed")
    unpack_job(packed, KEYS)
    unsigned, _, rest = packed.rpartition(b',"signature":"')
    assert rest == b"web-1:" + hmac.new(SECRET.encode(), unsigned + b"}", hashlib.sha256).hexdigest().encode() + b'"}'


def test_a_producer_of_another_language_writes_its_json_as_it_likes() -> None:
    packed = json.dumps({"skill": "query", "question": "ünï", "id": "a", "settings": {"temperature": 0}}, indent=1)
    assert unpack_job(KEYS.sign(packed.encode()), KEYS).question == "ünï"


def test_any_of_the_keys_is_accepted_and_the_first_one_signs() -> None:
    both = keys(f"new:{OTHER}", f"web-1:{SECRET}")
    assert unpack_job(KEYS.sign(pack(JOBS["job-query"])), both).id
    assert b'"new:' in both.sign(pack(JOBS["job-query"]))


@given(st.data())
def test_no_byte_can_be_changed(data: st.DataObject) -> None:
    signed = bytearray(read("both", "job-signed"))
    place = data.draw(st.integers(0, len(signed) - 1))
    signed[place] ^= data.draw(st.integers(1, 255))
    refusal(bytes(signed))


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"{}",
        b"\xff",
        read("both", "job-query"),
        read("both", "job-signed") + b"\n",
        read("both", "job-signed") + b"{}",
        read("both", "job-signed")[:-1] + b',"x":1}',
        read("both", "job-signed").replace(b',"signature"', b', "signature"'),
        read("both", "job-signed")[:-1] + b"," + read("both", "job-signed")[1:],
        b'{"id":"a","skill":"query","question":",\\"signature\\":\\"web-1:' + b"0" * 64 + b'"}',
    ],
)
def test_anything_else_is_refused(packed: bytes) -> None:
    refusal(packed)


def test_a_key_that_is_unknown_or_has_another_secret() -> None:
    signed = KEYS.sign(pack(JOBS["job-query"]))
    unknown, wrong = refusal(signed, keys(f"web-2:{SECRET}")), refusal(signed, keys(f"web-1:{OTHER}"))
    assert unknown == wrong, "which of the two it was is nobody's concern"


def test_a_key_that_is_unknown_is_not_an_empty_secret() -> None:
    packed = pack(JOBS["job-query"])
    digest = hmac.new(b"", packed, hashlib.sha256).hexdigest()
    refusal(packed[:-1] + f',"signature":"nobody:{digest}"}}'.encode())


def test_without_keys_a_signature_is_not_looked_at() -> None:
    assert unpack_job(read("both", "job-signed").replace(b"photos", b"albums")).image == "s3://albums/street.jpg"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["secret-without-a-key-id"], "keyid:secret"),
        (["a b:" + SECRET], "keyid:secret"),
        (["k:short"], "too short"),
        ([f"k:{SECRET}", f"k:{OTHER}"], "twice"),
    ],
)
def test_keys_that_cannot_be_read(entries: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        SigningKeys.read(entries)
    assert SECRET not in str(raised.value)
    assert "secret-without" not in str(raised.value)


def test_no_keys_are_none_and_secrets_stay_out_of_repr() -> None:
    assert SigningKeys.read([]) is None
    assert SECRET not in repr(KEYS)
