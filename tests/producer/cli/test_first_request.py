import ast
import shlex

import pytest

from stoop.cli.first_request import first_request


@pytest.mark.parametrize(
    ("skills", "path", "call"),
    [
        (("query", "caption", "chat"), "/v1/query", "chat.completions.create("),
        (("chat",), "/v1/chat/completions", "chat.completions.create("),
        (("transcribe", "translate"), "/v1/audio/transcriptions", "audio.transcriptions.create("),
        (("embed",), "/v1/embeddings", "embeddings.create("),
        (("rerank",), "/v1/rerank", None),
        ((), "/v1/query", "chat.completions.create("),
    ],
)
def test_the_first_request_is_one_that_the_model_can_answer(
    skills: tuple[str, ...], path: str, call: str | None
) -> None:
    found = first_request("qwen3-4b", skills, "s3://stoop/a.png")
    assert found.path == path
    assert shlex.split(found.fields)[0] in ("-H", "-F")
    if call is None:
        assert found.call is None
    else:
        assert found.call is not None and found.call.startswith(call) and "model='qwen3-4b'" in found.call
        ast.parse(found.call)
        assert '"' not in found.call, "the shell's quotes are around it"
