"""LlamaIndex: `OpenAILike` with images, and `OpenAILikeEmbedding`."""

import openai
from llama_index.core.llms import ChatMessage, ImageBlock, TextBlock
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike
from places import COUNT, MODEL, PICTURE, SHAPES, STREAMING, TEXTS, UNENDING, UP, WORDS, cancel_job, expect, run


def model(base, name):
    return OpenAILike(
        api_base=f"{base}/v1", api_key="any", model=name, is_chat_model=True, timeout=60, max_retries=0, temperature=0
    )


def user_message(text):
    return [ChatMessage(role="user", content=text)]


def answers():
    blocks = [TextBlock(text=COUNT), ImageBlock(image=PICTURE, image_mimetype="image/png")]
    answer = model(UP, MODEL).chat([ChatMessage(role="user", blocks=blocks)])
    assert answer.message.content == SHAPES, answer


def streams():
    *_, last = model(STREAMING, "moondream3-preview").stream_chat(user_message("tell 12"))
    assert last.message.content == WORDS, last


def errors():
    expect(openai.NotFoundError, lambda: model(UP, "no-model").chat(user_message("?")), message="no worker serves")
    expect(openai.BadRequestError, lambda: model(UP, MODEL).chat(user_message("?"), n=2), message="n is not supported")

    def broken():
        for chunk in model(STREAMING, "moondream3-preview").stream_chat(user_message(UNENDING)):
            if chunk.delta:
                cancel_job(chunk.raw.id)

    expect(openai.APIError, broken, message="cancelled")


def cancel():
    stream = model(STREAMING, "moondream3-preview").stream_chat(user_message(UNENDING))
    next(chunk for chunk in stream if chunk.delta)
    stream.close()


def vectors():
    embedding = OpenAILikeEmbedding(api_base=f"{TEXTS}/v1", api_key="any", model_name="embedder")
    assert len(embedding.get_query_embedding("the cat")) == 48
    assert len(embedding.get_text_embedding_batch(["the cat", "a dog"])) == 2


run(answers, streams, errors, cancel, vectors)
