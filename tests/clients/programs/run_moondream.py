"""Moondream's own client for Python."""

import io
import urllib.error

import moondream as md
from PIL import Image
from places import COUNT, PICTURE, SHAPE, SHAPES, STREAMING, UNENDING, UP, WORDS, expect, run

IMAGE = Image.open(io.BytesIO(PICTURE))


def client(base):
    return md.vl(endpoint=f"{base}/v1", api_key="any")


def answers():
    model = client(UP)
    assert model.query(IMAGE, COUNT, settings={"temperature": 0})["answer"] == SHAPES
    encoded = model.encode_image(IMAGE)
    assert model.caption(encoded, length="short")["caption"]
    [box] = model.detect(encoded, SHAPE, settings={"max_objects": 5})["objects"]
    [point] = model.point(encoded, SHAPE)["points"]
    assert box["x_min"] < point["x"] < box["x_max"] and box["y_min"] < point["y"] < box["y_max"]
    assert len(model.point(encoded, "gaze", spatial_refs=[[0.5, 0.25]])["points"]) <= 1


def streams():
    assert "".join(client(STREAMING).query(None, "tell 12", stream=True)["answer"]) == WORDS
    assert "".join(client(UP).caption(IMAGE, stream=True)["caption"])


def chats():
    messages = [{"role": "user", "content": "tell 12"}]
    answer = client(STREAMING).chat(messages)
    assert answer["message"]["content"] == WORDS, answer
    assert "".join(client(STREAMING).chat(messages, stream=True)["message"]) == WORDS


def errors():
    expect(urllib.error.HTTPError, lambda: client(UP).query(None, ""), message="400")
    wrong = md.vl(endpoint=f"{UP}/v1", api_key="any", model="no-model")
    expect(urllib.error.HTTPError, lambda: wrong.query(IMAGE, COUNT), message="404")
    expect(urllib.error.HTTPError, lambda: list(wrong.query(IMAGE, COUNT, stream=True)["answer"]), message="404")


def cancel():
    words = client(STREAMING).query(None, UNENDING, stream=True)["answer"]
    next(words)
    words.close()


run(answers, streams, chats, errors, cancel)
