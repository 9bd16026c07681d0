import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import stoop
from stoop import AsyncClient, InvalidJob, JobFailed, TimedOut
from stoop.client.events import follow
from stoop.config import ProducerConfig
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from stoop_schemas.skill import CaptionLength, Settings, Skill
from tests.producer.scripted import ScriptedTransport, answer, failing

IMAGE = "s3://photos/cat.jpg"
PHOTO = {"type": "image_url", "image_url": {"url": IMAGE}}


def shown(**more: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": IMAGE, **more}}


REQUIRED = inspect.Parameter.empty


def connect(transport: ScriptedTransport, **config: Any) -> AsyncClient:
    return AsyncClient(ProducerConfig(**config), transport=transport)


@pytest.mark.parametrize(
    ("call", "given"),
    [
        (lambda client: client.caption(IMAGE, length="short"), {"caption": "shapes on paper"}),
        (lambda client: client.query(IMAGE, "how many?"), {"answer": "two red circles"}),
        (lambda client: client.query(question="how many?"), {"answer": "two red circles"}),
        (
            lambda client: client.query(IMAGE, "how many?", reasoning=True),
            {"answer": "two red circles", "reasoning": {"text": "I count.", "grounding": []}},
        ),
        (lambda client: client.point(IMAGE, "cat"), {"points": [{"x": 0.25, "y": 0.75}]}),
    ],
)
async def test_skills_have_moondreams_answers(call: Callable[[AsyncClient], Any], given: dict[str, Any]) -> None:
    async with connect(ScriptedTransport(answer)) as client:
        assert await call(client) == given


async def test_jobs_that_name_no_model_take_the_client_s() -> None:
    transport = ScriptedTransport(answer)
    async with connect(transport, job_model="moondream3") as client:
        await client.detect(IMAGE, "cat")
        await client.submit(await client.prepare("caption", IMAGE, model="moondream2"))
    assert [job.model for job in transport.submitted] == ["moondream3", "moondream2"]


async def test_detect_submits_the_given_arguments() -> None:
    transport = ScriptedTransport(answer)
    async with connect(transport, lane="bulk") as client:
        assert len((await client.detect(IMAGE, "cat", settings={"max_objects": 2}))["objects"]) == 2
    [job] = transport.submitted
    assert (job.skill, job.image, job.object, job.lane) == (Skill.DETECT, IMAGE, "cat", "bulk")
    assert (job.settings, job.stream) == (Settings(max_objects=2), False)


async def test_a_streamed_caption_is_an_iterator_of_its_text() -> None:
    transport = ScriptedTransport(answer)
    async with connect(transport) as client:
        given = await client.caption(IMAGE, stream=True)
        assert [piece async for piece in given["caption"]] == ["shapes", " ", "on paper"]
    assert transport.submitted[0].stream
    assert transport.submitted[0].length is CaptionLength.NORMAL


async def test_a_streamed_answer_has_its_reasoning_first() -> None:
    async with connect(ScriptedTransport(answer)) as client:
        given = await client.query(IMAGE, "how many?", stream=True, reasoning=True)
        assert given["reasoning"]["text"] == "I count."
        assert "".join([piece async for piece in given["answer"]]) == "two red circles"


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ("hello", r"`\$.messages`"),
        ({"role": "user", "content": "hello"}, r"`\$.messages`"),
        (["hello"], r"`\$.messages\[0\]`"),
        ([{"role": "user", "content": [PHOTO]}, "and that"], r"`\$.messages\[1\]`"),
        ([{"role": "user", "content": 3}], r"`\$.messages\[0\].content`"),
        ([{"role": "user", "content": ["hello"]}], r"`\$.messages\[0\].content\[0\]`"),
        ([], "give `messages`"),
        ([{"role": "user", "content": [shown(detail="tiny")]}], "detail of an image must be one of auto, low"),
    ],
)
async def test_messages_in_another_form_are_refused_with_their_place(messages: Any, fault: str) -> None:
    transport = ScriptedTransport(answer)
    async with connect(transport) as client:
        with pytest.raises(InvalidJob, match=fault):
            await client.chat(messages)
    assert transport.submitted == []


@pytest.mark.parametrize(
    ("parts", "settings", "most"),
    [
        ([shown(detail="low")], None, 512 * 512),
        ([shown(detail="low"), shown(detail="low")], {"temperature": 0.0}, 512 * 512),
        ([shown(detail="low")], {"max_pixels": 65536}, 65536),
        ([shown(detail="low"), shown(detail="high")], None, None),
        ([shown(detail="low"), shown()], None, None),
        ([shown(detail="original")], None, None),
        ([{"type": "image_url", "image_url": IMAGE}], None, None),
    ],
)
async def test_low_detail_of_all_images_makes_them_small(parts: Any, settings: Any, most: int | None) -> None:
    transport = ScriptedTransport(answer)
    async with connect(transport) as client:
        job = await client.prepare("chat", messages=[{"role": "user", "content": parts}], settings=settings)
    assert (job.settings.max_pixels, job.images) == (most, [IMAGE] * len(parts))


async def test_a_stream_is_the_jobs_events() -> None:
    transport = ScriptedTransport(answer)
    async with connect(transport) as client:
        job_id = await client.submit(Job(id="mine", skill=Skill.QUERY, question="?"))
        events = [event async for event in client.stream(job_id)]
        assert events == [event async for event in follow(transport, "mine")]
        assert (await client.result(job_id)).id == "mine"


async def test_a_failed_job_is_raised_with_its_failure_and_result() -> None:
    failure = Failure.of(FailureCode.IMAGE_NOT_FOUND, "nothing there")
    async with connect(ScriptedTransport(failing(failure))) as client:
        with pytest.raises(JobFailed, match="image_not_found: nothing there") as raised:
            await client.caption(IMAGE)
        assert raised.value.failure == failure
        assert raised.value.result.worker == "w1"
        streamed = await client.caption(IMAGE, stream=True)
        with pytest.raises(JobFailed, match="image_not_found"):
            await anext(streamed["caption"])


async def test_no_answer_in_time_is_an_error_that_names_the_job() -> None:
    transport = ScriptedTransport()
    async with connect(transport, timeout_seconds=0.01) as client:
        with pytest.raises(TimedOut, match="worker") as raised:
            await client.query(question="?")
        assert raised.value.job_id == transport.submitted[0].id
        streamed = await client.query(question="?", stream=True)
        with pytest.raises(TimedOut):
            await anext(streamed["answer"])
        with pytest.raises(TimedOut):
            await client.result("unknown", timeout=0.0)


async def test_a_stream_that_is_left_unsubscribes() -> None:
    transport = ScriptedTransport(answer)
    async with connect(transport) as client:
        streamed = (await client.caption(IMAGE, stream=True))["caption"]
        assert await anext(streamed) == "shapes"
        assert transport.watchers(transport.submitted[0].id) == 1
        await streamed.aclose()
        assert transport.watchers(transport.submitted[0].id) == 0


async def test_invalid_arguments_are_reported_before_any_upload_or_submission() -> None:
    transport = ScriptedTransport(answer)
    async with connect(transport) as client:
        with pytest.raises(InvalidJob, match="temprature"):
            await client.caption("no-such-file.png", settings={"temprature": 0})
        with pytest.raises(InvalidJob, match="question"):
            await client.query(IMAGE)
        with pytest.raises(InvalidJob, match="id must be"):
            await client.submit(Job(id="with space", skill=Skill.QUERY, question="?"))
    assert transport.submitted == []


async def test_many_jobs_go_in_one_submission() -> None:
    transport = ScriptedTransport()
    async with connect(transport) as client:
        jobs = [await client.prepare("caption", IMAGE) for _ in range(3)]
        assert await client.submit_many(jobs) == [job.id for job in jobs]
    assert transport.submitted == jobs


async def test_closing_twice_is_fine() -> None:
    transport = ScriptedTransport()
    client = connect(transport)
    await client.aclose()
    await client.aclose()
    assert transport.closed >= 1


def test_every_public_name_is_there() -> None:
    assert sorted(stoop.__all__) == list(stoop.__all__)
    assert all(hasattr(stoop, name) for name in stoop.__all__)


def test_the_import_loads_nothing_heavy() -> None:
    heavy = (
        "{'torch', 'numpy', 'PIL', 'boto3', 'redis', 'pydantic', 'typer', 'rich', 'celery', 'kombu', 'stoop_worker'}"
    )
    code = f"import sys, stoop; print(sorted({heavy} & set(sys.modules)), len(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found, count = done.stdout.rsplit(maxsplit=1)
    assert found == "[]"
    assert int(count) < 300, "half of them are asyncio's"


def test_the_help_of_the_command_line_loads_little_more() -> None:
    heavy = "{'torch', 'numpy', 'PIL', 'boto3', 'redis', 'pydantic', 'celery', 'worker'}"
    code = (
        "import sys, contextlib, io\n"
        "sys.argv = ['stoop', '--help']\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "    from stoop.cli.app import main; main()\n"
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


MOONDREAMS = {
    "encode_image": {"image": REQUIRED},
    "caption": {"image": REQUIRED, "length": "normal", "stream": False, "settings": None},
    "query": {
        "image": None,
        "question": None,
        "stream": False,
        "settings": None,
        "reasoning": None,  # theirs is False; here each model has its default
        "spatial_refs": None,
    },
    "detect": {"image": REQUIRED, "object": REQUIRED, "settings": None},
    "point": {"image": REQUIRED, "object": REQUIRED, "settings": None, "spatial_refs": None},
}


@pytest.mark.parametrize("name", MOONDREAMS)
def test_methods_have_the_same_parameters_as_moondreams_client(name: str) -> None:
    parameters = list(inspect.signature(getattr(AsyncClient, name)).parameters.values())[1:]
    assert [(each.name, each.default) for each in parameters] == list(MOONDREAMS[name].items())
    assert all(each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for each in parameters)


async def test_text_that_cannot_be_written_is_refused() -> None:
    async with AsyncClient(ProducerConfig(redis_url="redis://127.0.0.1:1")) as client:
        with pytest.raises(InvalidJob, match="surrogates"):
            await client.query(IMAGE, "\ud800")


async def test_images_of_another_tenant_are_not_submitted() -> None:
    transport = ScriptedTransport(answer)
    async with connect(transport, allowed_buckets="photos,acme=scans/acme") as client:
        await client.caption(IMAGE)
        with pytest.raises(InvalidJob, match="not allowed") as raised:
            await client.submit(await client.prepare("caption", IMAGE, tenant="acme"))
    assert raised.value.failure.code is FailureCode.IMAGE_FORBIDDEN
    assert len(transport.submitted) == 1
