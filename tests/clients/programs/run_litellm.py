"""LiteLLM: its OpenAI provider, and its providers for self-hosted servers."""

import litellm
from places import (
    COUNT,
    MODEL,
    PICTURE_URL,
    RECORDING,
    SHAPES,
    SPEECH,
    SPOKEN,
    STREAMING,
    TEXTS,
    UNENDING,
    UP,
    WORDS,
    cancel_job,
    expect,
    run,
)

SHOWN = [
    {
        "role": "user",
        "content": [{"type": "text", "text": COUNT}, {"type": "image_url", "image_url": {"url": PICTURE_URL}}],
    }
]


def ask(base, model, messages, **more):
    return litellm.completion(
        model=model, messages=messages, api_base=f"{base}/v1", api_key="any", timeout=60, max_retries=0, **more
    )


def user_message(text):
    return [{"role": "user", "content": text}]


def answers():
    for provider in ("openai", "hosted_vllm"):
        answer = ask(UP, f"{provider}/{MODEL}", SHOWN, temperature=0)
        assert answer.choices[0].message.content == SHAPES and answer.usage.total_tokens > 0, answer


def streams():
    chunks = list(
        ask(
            STREAMING,
            "openai/moondream3-preview",
            user_message("tell 12"),
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == WORDS
    assert chunks[-1].usage.completion_tokens > 0


def errors():
    expect(litellm.NotFoundError, lambda: ask(UP, "openai/no-model", user_message("?")), message="no worker serves")
    expect(
        litellm.BadRequestError,
        lambda: ask(UP, f"openai/{MODEL}", user_message("?"), n=2),
        message="n is not supported",
    )

    def broken():
        for chunk in ask(STREAMING, "openai/moondream3-preview", user_message(UNENDING), stream=True):
            if chunk.choices[0].delta.content:
                cancel_job(chunk.id)

    expect(Exception, broken, message="cancelled")


def cancel():
    stream = ask(STREAMING, "openai/moondream3-preview", user_message(UNENDING), stream=True)
    for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    stream.completion_stream.close()


def vectors():
    answer = litellm.embedding(model="openai/embedder", input=["a", "b"], api_base=f"{TEXTS}/v1", api_key="any")
    assert len(answer.data) == 2 and len(answer.data[0]["embedding"]) == 48, answer


def hears():
    with RECORDING.open("rb") as file:
        answer = litellm.transcription(model="openai/speech", file=file, api_base=f"{SPEECH}/v1", api_key="any")
    assert answer.text == SPOKEN, answer


def ranks():
    answer = litellm.rerank(
        model="hosted_vllm/ranker",
        query="cat",
        documents=["the cat sat", "what is the capital"],
        top_n=1,
        api_base=f"{TEXTS}",
        api_key="any",
    )
    assert len(answer.results) == 1 and 0 < answer.results[0]["relevance_score"] < 1, answer


run(answers, streams, errors, cancel, vectors, hears, ranks)
