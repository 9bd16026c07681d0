"""Every skill by Triton's own client, plain and streamed, and errors by their codes."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from stoop.demo.pictures import Picture
from tests.audio.sounds import encoded, tone
from tests.examples.conftest import Deployment
from tests.examples.streaming_child import words
from tests.gateway.conftest import GatewayProcess
from tests.gateway.grpc.client import MODEL, Stream, grpc_client, inputs, refused, streaming, tensor, text_of

COUNT = "How many shapes are there?"


@pytest.fixture
def picture(demo_deployment: tuple[Deployment, Picture, str]) -> Picture:
    return demo_deployment[1]


def test_moondreams_skills(
    demo_gateway: GatewayProcess, demo_deployment: tuple[Deployment, Picture, str], picture: Picture
) -> None:
    with grpc_client(demo_gateway.grpc) as client:

        def ask(skill: str, image: Any = picture.encoded, **values: Any) -> dict[str, Any]:
            result = client.infer(MODEL, inputs(skill, image=image, **values), request_id=skill)
            assert result.get_response().id == skill
            return text_of(result)

        shape = picture.shapes[0]
        for image in (picture.encoded, demo_deployment[2]):
            assert ask("query", image, question=COUNT, reasoning=False)["answer"] == str(len(picture.shapes))
        caption = ask("caption", length="short", temperature=0.0, max_tokens=3)
        assert caption["caption"] and caption["metrics"]["output_tokens"] == 3
        [box] = ask("detect", object=shape.name, max_objects=1)["objects"]
        left, top, right, bottom = shape.box
        assert left < (box["x_min"] + box["x_max"]) / 2 * picture.size[0] < right
        [point] = ask("point", object=shape.name)["points"]
        assert top < point["y"] * picture.size[1] < bottom
        gaze = ask("gaze", spatial_refs="[[0.5, 0.25]]")["gaze"]
        assert ask("point", object="gaze", spatial_refs="[[0.5, 0.25]]")["points"] == ([gaze] if gaze else [])


def test_every_skill_streams(demo_gateway: GatewayProcess, picture: Picture) -> None:
    with streaming(demo_gateway.grpc) as stream:
        for skill, values in (
            ("query", {"question": COUNT}),
            ("caption", {}),
            ("detect", {"object": picture.shapes[0].name}),
            ("point", {"object": picture.shapes[0].name}),
        ):
            stream.ask(inputs(skill, image=picture.encoded, stream=True, **values), skill)
            came = stream.until_final()
            assert {response.id for response, _ in came} == {skill}
            texts = [text for _, text in came if text is not None]
            assert [text["completed"] for text in texts] == [False] * (len(texts) - 1) + [True]
            whole = text_of(stream.client.infer(MODEL, inputs(skill, image=picture.encoded, **values)))
            for name in ("answer", "caption", "objects", "points"):
                assert texts[-1].get(name) == whole.get(name)
            if skill == "caption":
                assert "".join(text["chunk"] for text in texts) == whole["caption"]


def test_the_last_response_is_marked(streaming_gateway: GatewayProcess) -> None:
    asked = inputs("query", question="tell 3", stream=True)
    with streaming(streaming_gateway.grpc) as stream:
        stream.ask(asked, "a")
        *_, (last, text) = stream.until_final()
        assert text is not None and text["completed"] and len(last.outputs) == 1
        stream.ask(asked, "b", enable_empty_final_response=True)
        came = stream.until_final()
        assert (came[-1][0].id, came[-1][1], len(came[-1][0].outputs)) == ("b", None, 0)
        assert came[-2][1] is not None and came[-2][1]["answer"] == "".join(words(3))
        stream.ask(inputs("query", question="tell 3"), "c")
        [(_, text)] = stream.until_final()
        assert text is not None and "completed" not in text and text["answer"] == "".join(words(3))


def test_a_chat_and_a_recording(
    streaming_gateway: GatewayProcess, speech_gateway: tuple[Deployment, GatewayProcess]
) -> None:
    with grpc_client(streaming_gateway.grpc) as client:
        messages = '[{"role": "user", "content": "hello"}]'
        answered = text_of(client.infer("streaming", inputs("chat", messages=messages)))
        assert answered["message"]["content"] == "1 messages, 0 images"
    with grpc_client(speech_gateway[1].grpc) as client:
        recording = encoded(np.concatenate((tone(30.0), tone(12.0, 3000.0))), "flac", "flac")
        answered = text_of(client.infer(MODEL, inputs("transcribe", audio=recording)))
        assert answered["transcript"]["text"] == "Band 11. Band 54."


def test_an_image_of_ten_megabytes_is_uploaded(demo_gateway: GatewayProcess) -> None:
    noise, written = Image.effect_noise((1900, 1900), 80).convert("RGB"), io.BytesIO()
    noise.save(written, "PNG", compress_level=0)
    assert len(written.getvalue()) > 10 << 20
    with grpc_client(demo_gateway.grpc) as client:
        assert text_of(client.infer(MODEL, inputs("caption", image=written.getvalue(), max_tokens=2)))["caption"]


def test_errors_have_codes_and_advice(demo_gateway: GatewayProcess, picture: Picture) -> None:
    good = inputs("query", question="what?")
    with grpc_client(demo_gateway.grpc) as client:
        for given, status, expected in (
            ((MODEL, inputs("query")), "INVALID_ARGUMENT", "question"),
            ((MODEL, [tensor("QUESTION", "what?")]), "INVALID_ARGUMENT", "give the input SKILL"),
            ((MODEL, [tensor("SKILL", 7), *good[1:]]), "INVALID_ARGUMENT", "SKILL must be BYTES"),
            ((MODEL, [*good, tensor("STREAM", 1)]), "INVALID_ARGUMENT", "STREAM must be BOOL"),
            ((MODEL, [*good, tensor("STREAM", True)]), "INVALID_ARGUMENT", "call ModelStreamInfer"),
            ((MODEL, [*good, tensor("COLOUR", "red")]), "INVALID_ARGUMENT", "known are SKILL, QUESTION"),
            ((MODEL, [*good, tensor("TEMPERATURE", -1.0)]), "INVALID_ARGUMENT", "TEMPERATURE is -1.0"),
            ((MODEL, [*good, tensor("IMAGE", b"\x89PNG\r\n")]), "INVALID_ARGUMENT", "image"),
            ((MODEL, [*good, tensor("IMAGE", "s3://stoop/nothing.png")]), "NOT_FOUND", "image_not_found"),
            ((MODEL, [*good, tensor("MODEL", "gpt-4")]), "NOT_FOUND", "model_not_found"),
            (("demo", [*good, tensor("MODEL", "gpt-4")]), "INVALID_ARGUMENT", "leave MODEL out"),
            ((MODEL, inputs("chat", messages="[]")), "INVALID_ARGUMENT", "messages"),
            (("gpt-4", good), "NOT_FOUND", "no worker serves the model 'gpt-4'"),
            ((MODEL, good, "2"), "NOT_FOUND", "leave the version out"),
        ):
            found, message = refused(client.infer, *given)
            assert found == status and expected in message, (given, found, message)
        assert refused(client.get_model_metadata, "gpt-4")[0] == "NOT_FOUND"
        found, message = refused(client.infer, MODEL, good, timeout=1)
        assert found == "DEADLINE_EXCEEDED", "the parameter `timeout`, in microseconds"
    with grpc_client(demo_gateway.grpc) as client:
        stream = Stream(client)
        stream.ask(inputs("query", question="what?", image=b"\x89PNG\r\n"), "bad")
        with pytest.raises(Exception, match="image_undecodable"):
            stream.next()
        stream.ask(inputs("query", question=COUNT, image=picture.encoded), "good")
        assert stream.next()[0].id == "good", "one request's error does not end the stream"
        client.stop_stream()
        ending = Stream(client, headers={"triton_grpc_error": "true"})
        ending.ask(inputs("query"), "bad")
        with pytest.raises(Exception, match="INVALID_ARGUMENT"):
            ending.next()


def test_a_repeated_request_is_the_same_job(streaming_gateway: GatewayProcess) -> None:
    headers = {"idempotency-key": "grpc-once"}
    with grpc_client(streaming_gateway.grpc) as client:
        first, again = (
            text_of(client.infer(MODEL, inputs("query", question="tell 2"), headers=headers)) for _ in range(2)
        )
        assert first["job_id"] == again["job_id"]
        status, message = refused(client.infer, MODEL, inputs("query", question="tell 3"), headers=headers)
        assert status == "ALREADY_EXISTS" and "idempotency_conflict" in message


def test_each_request_of_a_stream_has_its_own_idempotency_key(streaming_gateway: GatewayProcess) -> None:
    asked = [("a", 1), ("b", 2), ("", 3)]
    jobs: list[list[str]] = []
    with grpc_client(streaming_gateway.grpc) as client:
        for _ in range(2):
            stream, answers = Stream(client, headers={"idempotency-key": "grpc-stream"}), []
            for request_id, count in asked:
                stream.ask(inputs("query", question=f"tell {count}"), request_id)
                [(_, text)] = stream.until_final()
                assert text is not None and text["answer"] == "".join(words(count))
                answers.append(text["job_id"])
            jobs.append(answers)
            client.stop_stream()
    assert jobs[0] == jobs[1] and len(set(jobs[0])) == 3, "a repeated stream gets the answers of the same jobs"
