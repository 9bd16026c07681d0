"""Jobs on both sides of the contract, for `job.check` and for the exported JSON Schema alike."""

from typing import Any

from schemas.failure import FailureCode

__all__ = ["INVALID", "ONLY_CHECKED", "VALID", "VALID_CHANGES"]

IMAGE = {"image": "s3://b/k"}
VALID: dict[str, Any] = {"id": "a", "skill": "query", "question": "q"}

VALID_CHANGES: list[dict[str, Any]] = [
    {},
    IMAGE,
    {"id": "0123456789abcdef0123456789abcdef-3"},
    {"id": "_a.B:9-"},
    {"image": "s3://b/k?versionId=x"},
    {"image": "s3://b/\n"},
    {"image": "data:image/png;base64,AA=="},
    {"image": "https://example.com/a.png"},
    {**IMAGE, "spatial_refs": []},
    {**IMAGE, "spatial_refs": [[0, 1], [0.5, 0.5, 0.5, 0.5]]},
    {"skill": "caption", **IMAGE, "question": None},
    {"skill": "detect", **IMAGE, "object": "car"},
    {"skill": "point", **IMAGE, "object": "car"},
    {"deadline": 1},
    {"deadline": (1 << 53) - 1},
    {"max_attempts": 1},
    {"max_attempts": 100},
    {"custom_id": "any text, ä"},
    {"metadata": {}},
    {"signature": "key.1:" + "0f" * 32},
]

# What JSON Schema cannot say.
ONLY_CHECKED: list[tuple[dict[str, Any], FailureCode]] = [
    ({"spatial_refs": [[0.5, 0.5]]}, FailureCode.INVALID_ARGUMENT),
    ({**IMAGE, "spatial_refs": [[0.5, 0, 0.25, 1]]}, FailureCode.INVALID_ARGUMENT),
    ({**IMAGE, "spatial_refs": [[0, 0.5, 1, 0.25]]}, FailureCode.INVALID_ARGUMENT),
    ({"skill": "detect", **IMAGE, "object": "car", "spatial_refs": [[0, 0]]}, FailureCode.INVALID_ARGUMENT),
    ({"metadata": {"a": "x" * 2000}}, FailureCode.INVALID_ARGUMENT),
]

INVALID: list[tuple[dict[str, Any], FailureCode]] = [
    ({"question": ""}, FailureCode.MALFORMED),
    ({"question": None}, FailureCode.MALFORMED),
    ({"skill": "caption"}, FailureCode.MALFORMED),
    ({"skill": "detect", **IMAGE}, FailureCode.MALFORMED),
    ({"skill": "point", **IMAGE, "object": ""}, FailureCode.MALFORMED),
    ({"skill": "point", "object": "car"}, FailureCode.MALFORMED),
    ({"id": ""}, FailureCode.INVALID_ARGUMENT),
    ({"id": "a b"}, FailureCode.INVALID_ARGUMENT),
    ({"id": "{0}"}, FailureCode.INVALID_ARGUMENT),
    ({"id": "ä"}, FailureCode.INVALID_ARGUMENT),
    ({"id": "a" * 129}, FailureCode.INVALID_ARGUMENT),
    ({"lane": ""}, FailureCode.INVALID_ARGUMENT),
    ({"lane": "a/b"}, FailureCode.INVALID_ARGUMENT),
    ({"tenant": "a*"}, FailureCode.INVALID_ARGUMENT),
    ({"custom_id": ""}, FailureCode.INVALID_ARGUMENT),
    ({"custom_id": "a" * 129}, FailureCode.INVALID_ARGUMENT),
    ({"idempotency_key": ""}, FailureCode.INVALID_ARGUMENT),
    ({"idempotency_key": "a" * 129}, FailureCode.INVALID_ARGUMENT),
    ({"traceparent": ""}, FailureCode.INVALID_ARGUMENT),
    ({"traceparent": "a" * 129}, FailureCode.INVALID_ARGUMENT),
    ({"signature": ""}, FailureCode.INVALID_ARGUMENT),
    ({"signature": "key:" + "0F" * 32}, FailureCode.INVALID_ARGUMENT),
    ({"signature": "0f" * 32}, FailureCode.INVALID_ARGUMENT),
    ({"question": "a" * 8193}, FailureCode.INVALID_ARGUMENT),
    ({"skill": "point", **IMAGE, "object": "a" * 8193}, FailureCode.INVALID_ARGUMENT),
    ({"image": ""}, FailureCode.INVALID_ARGUMENT),
    ({"image": "http://example.com/a.png"}, FailureCode.INVALID_ARGUMENT),
    ({"image": "s3://"}, FailureCode.INVALID_ARGUMENT),
    ({"image": "s3://b"}, FailureCode.INVALID_ARGUMENT),
    ({"image": "s3://b/"}, FailureCode.INVALID_ARGUMENT),
    ({"image": "s3:///k"}, FailureCode.INVALID_ARGUMENT),
    ({"image": "/etc/passwd"}, FailureCode.INVALID_ARGUMENT),
    ({"image": "data:text/plain,x"}, FailureCode.INVALID_ARGUMENT),
    ({"image": "s3://" + "a" * (1 << 20)}, FailureCode.IMAGE_TOO_LARGE),
    ({"deadline": 0}, FailureCode.INVALID_ARGUMENT),
    ({"deadline": -1}, FailureCode.INVALID_ARGUMENT),
    ({"deadline": 1 << 53}, FailureCode.INVALID_ARGUMENT),
    ({"max_attempts": 0}, FailureCode.INVALID_ARGUMENT),
    ({"max_attempts": 101}, FailureCode.INVALID_ARGUMENT),
    ({**IMAGE, "spatial_refs": [[]]}, FailureCode.INVALID_ARGUMENT),
    ({**IMAGE, "spatial_refs": [[0.5, 0.5, 0.5]]}, FailureCode.INVALID_ARGUMENT),
    ({**IMAGE, "spatial_refs": [[0.5, 1.5]]}, FailureCode.INVALID_ARGUMENT),
    ({**IMAGE, "spatial_refs": [[-0.5, 0.5]]}, FailureCode.INVALID_ARGUMENT),
    ({"settings": {"temperature": -0.1}}, FailureCode.INVALID_ARGUMENT),
    ({"settings": {"temperature": 10.5}}, FailureCode.INVALID_ARGUMENT),
    ({"settings": {"top_p": 1.1}}, FailureCode.INVALID_ARGUMENT),
    ({"settings": {"max_tokens": 0}}, FailureCode.INVALID_ARGUMENT),
    ({"settings": {"max_objects": 0}}, FailureCode.INVALID_ARGUMENT),
    ({"settings": {"seed": -1}}, FailureCode.INVALID_ARGUMENT),
    *ONLY_CHECKED,
]
