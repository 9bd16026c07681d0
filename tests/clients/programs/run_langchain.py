"""LangChain: `ChatOpenAI` and `OpenAIEmbeddings` with a base URL."""

import openai
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from places import COUNT, MODEL, PICTURE_URL, SHAPES, STREAMING, TEXTS, UNENDING, UP, WORDS, cancel_job, expect, run

SHOWN = HumanMessage([{"type": "text", "text": COUNT}, {"type": "image_url", "image_url": {"url": PICTURE_URL}}])


def chat(base, model, **more):
    return ChatOpenAI(base_url=f"{base}/v1", api_key="any", model=model, timeout=60, max_retries=0, **more)


def answers():
    answer = chat(UP, MODEL, temperature=0).invoke([("system", ""), SHOWN])
    assert answer.content == SHAPES and answer.usage_metadata["total_tokens"] > 0, answer


def streams():
    chunks = list(chat(STREAMING, "moondream3-preview", stream_usage=True).stream("tell 12"))
    assert "".join(chunk.content for chunk in chunks) == WORDS
    assert sum(chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata) > 0


def errors():
    expect(openai.NotFoundError, lambda: chat(UP, "no-model").invoke("?"), message="no worker serves")

    def f(x: int) -> int:
        """Double a number."""
        return 2 * x

    expect(openai.BadRequestError, lambda: chat(UP, MODEL).bind_tools([f]).invoke("?"), message="tools")

    def broken():
        model = chat(STREAMING, "moondream3-preview", include_response_headers=True)
        job_id = None
        for chunk in model.stream(UNENDING):
            job_id = job_id or chunk.response_metadata.get("headers", {}).get("x-stoop-job-id")
            if chunk.content:
                cancel_job(job_id)

    expect(openai.APIError, broken, message="cancelled")


def cancel():
    stream = chat(STREAMING, "moondream3-preview").stream(UNENDING)
    next(chunk for chunk in stream if chunk.content)
    stream.close()


def vectors():
    plain = OpenAIEmbeddings(base_url=f"{TEXTS}/v1", api_key="any", model="embedder", check_embedding_ctx_length=False)
    assert len(plain.embed_query("the cat")) == 48
    # by default it sends ids of OpenAI's tokenizer, for which it needs the network; then it is refused with the remedy
    expect(
        openai.BadRequestError,
        lambda: openai.OpenAI(base_url=f"{TEXTS}/v1", api_key="any").embeddings.create(model="embedder", input=[[87]]),
        message="check_embedding_ctx_length=False",
    )


run(answers, streams, errors, cancel, vectors)
