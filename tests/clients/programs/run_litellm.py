"""LiteLLM: its OpenAI provider, and the providers that it has for servers of one's own."""

import litellm
from places import (
    COUNT,
    HEARING,
    MODEL,
    PICTURE_URL,
    RECORDING,
    SHAPES,
    SPOKEN,
    TELLING,
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


def said(text):
    return [{"role": "user", "content": text}]


def answers():
    for provider in ("openai", "hosted_vllm"):
        told = ask(UP, f"{provider}/{MODEL}", SHOWN, temperature=0)
        assert told.choices[0].message.content == SHAPES and told.usage.total_tokens > 0, told


def streams():
    chunks = list(
        ask(
            TELLING,
            "openai/moondream3-preview",
            said("tell 12"),
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == WORDS
    assert chunks[-1].usage.completion_tokens > 0


def errors():
    expect(litellm.NotFoundError, lambda: ask(UP, "openai/no-model", said("?")), says="no worker serves")
    expect(litellm.BadRequestError, lambda: ask(UP, f"openai/{MODEL}", said("?"), n=2), says="n is not supported")

    def broken():
        for chunk in ask(TELLING, "openai/moondream3-preview", said(UNENDING), stream=True):
            if chunk.choices[0].delta.content:
                cancel_job(chunk.id)

    expect(Exception, broken, says="cancelled")


def cancel():
    stream = ask(TELLING, "openai/moondream3-preview", said(UNENDING), stream=True)
    for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    stream.completion_stream.close()


def vectors():
    told = litellm.embedding(model="openai/embedder", input=["a", "b"], api_base=f"{TEXTS}/v1", api_key="any")
    assert len(told.data) == 2 and len(told.data[0]["embedding"]) == 48, told


def hears():
    with RECORDING.open("rb") as file:
        told = litellm.transcription(model="openai/hearing", file=file, api_base=f"{HEARING}/v1", api_key="any")
    assert told.text == SPOKEN, told


def ranks():
    told = litellm.rerank(
        model="hosted_vllm/ranker",
        query="cat",
        documents=["the cat sat", "what is the capital"],
        top_n=1,
        api_base=f"{TEXTS}",
        api_key="any",
    )
    assert len(told.results) == 1 and 0 < told.results[0]["relevance_score"] < 1, told


run(answers, streams, errors, cancel, vectors, hears, ranks)
