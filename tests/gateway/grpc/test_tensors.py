"""Tensors of all kinds as Python's values, and sentences for those that are wrong."""

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoop.gateway.errors import ApiError
from stoop.gateway.grpc.messages import message_class, read_message
from stoop.gateway.grpc.tensors import Tensor, read_tensors, write_text

Request = message_class("ModelInferRequest")
NUMBERS = {
    "BOOL": ("bool_contents", np.bool_),
    "INT8": ("int_contents", np.int8),
    "INT16": ("int_contents", np.int16),
    "INT32": ("int_contents", np.int32),
    "INT64": ("int64_contents", np.int64),
    "UINT8": ("uint_contents", np.uint8),
    "UINT16": ("uint_contents", np.uint16),
    "UINT32": ("uint_contents", np.uint32),
    "UINT64": ("uint64_contents", np.uint64),
    "FP32": ("fp32_contents", np.float32),
    "FP64": ("fp64_contents", np.float64),
}


def request(*tensors: tuple[str, str, list[int]], raw: list[bytes] | None = None) -> Any:
    made = Request(raw_input_contents=raw or [])
    for name, datatype, shape in tensors:
        made.inputs.add(name=name, datatype=datatype, shape=shape)
    return made


def raw_bytes(*elements: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(each)) + each for each in elements)


@pytest.mark.parametrize("datatype", NUMBERS)
def test_numbers_are_the_same_raw_and_typed(datatype: str) -> None:
    field, dtype = NUMBERS[datatype]
    values = np.array([[0, 1, 2], [1, 0, 3]]).astype(dtype)
    raw = request(("A", datatype, [2, 3]), raw=[values.tobytes()])
    typed = request(("A", datatype, [2, 3]))
    getattr(typed.inputs[0].contents, field).extend(values.reshape(-1).tolist())
    expected = {"A": Tensor("A", datatype, (2, 3), tuple(values.reshape(-1).tolist()))}
    assert read_tensors(raw) == read_tensors(typed) == expected


def test_texts_and_halves() -> None:
    texts = (b"", "é".encode(), b"\x00" * 5)
    raw = request(("A", "BYTES", [3]), ("H", "FP16", [2]), raw=[raw_bytes(*texts), np.float16([1.5, -2]).tobytes()])
    assert [each.elements for each in read_tensors(raw).values()] == [texts, (1.5, -2.0)]
    typed = request(("A", "BYTES", [3]))
    typed.inputs[0].contents.bytes_contents.extend(texts)
    assert read_tensors(typed)["A"].elements == texts


def _typed(datatype: str, shape: list[int], **contents: Any) -> Any:
    made = request(("A", datatype, shape))
    for name, values in contents.items():
        getattr(made.inputs[0].contents, name).extend(values)
    return made


def _beside() -> Any:
    made = request(("A", "INT32", [1]), raw=[bytes(4)])
    made.inputs[0].contents.int_contents.append(1)
    return made


def _shared_memory() -> Any:
    made = request(("A", "INT32", [1]))
    made.inputs[0].parameters["shared_memory_region"].string_param = "region"
    return made


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        (request(("A", "STRING", [1])), "send one of BYTES, BOOL"),
        (request(("A", "INT32", [1]), raw=[bytes(3)]), "has 3 raw bytes, but 1 elements of INT32 are 4: send all of"),
        (request(("A", "INT32", [1]), raw=[bytes(8)]), "and no more"),
        (request(("A", "INT32", [1]), ("B", "INT32", [1]), raw=[bytes(4)]), "send one entry for each input"),
        (request(("A", "INT32", [1]), ("A", "INT32", [1]), raw=[bytes(4)] * 2), "is there twice: send it once"),
        (request(("A", "INT32", [1])), "has 0 elements, but the shape [1] is of 1"),
        (_typed("INT32", [1], int_contents=[1, 2]), "make the shape that of the elements"),
        (_typed("INT32", [1], fp32_contents=[1.0]), "put its elements into int_contents"),
        (_typed("FP16", [1]), "only raw_input_contents can hold"),
        (_beside(), "send only one of them"),
        (_shared_memory(), "send its elements in the request"),
        (request(("A", "INT32", [-1]), raw=[b""]), "negative"),
        (request(("A", "INT32", [1] * 9), raw=[bytes(4)]), "ninth dimension"),
        (request(("A", "INT8", [1 << 40, 1 << 40]), raw=[b""]), "send at most 4096"),
        (request(("A", "BYTES", [1]), raw=[b"\x05\x00\x00\x00four"]), "each after its length"),
        (request(("A", "BYTES", [1]), raw=[b"\x05\x00"]), "each after its length"),
        (request(("A", "BYTES", [2]), raw=[raw_bytes(b"a")]), "each after its length"),
        (request(("A", "BYTES", [1]), raw=[raw_bytes(b"a", b"b")]), "and no more"),
        (request(*((str(each), "INT8", [1]) for each in range(65))), "send at most 64"),
    ],
)
def test_a_wrong_tensor_is_refused_with_advice(wrong: Any, advice: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_tensors(wrong)
    assert caught.value.status == 400 and advice in caught.value.message


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_bytes_are_a_request_or_refused(written: bytes) -> None:
    try:
        read_tensors(read_message(written, Request()))
    except ApiError as error:
        assert error.status == 400


@pytest.mark.parametrize("raw", [True, False])
def test_a_text_comes_back_in_the_form_of_the_request(raw: bool) -> None:
    response = message_class("ModelInferResponse")()
    write_text(response, "TEXT_OUTPUT", b"text", raw=raw)
    assert list(response.raw_output_contents) == ([raw_bytes(b"text")] if raw else [])
    assert list(response.outputs[0].contents.bytes_contents) == ([] if raw else [b"text"])
