"""Cohere: rerank by both versions of its client."""

import cohere
from places import TEXTS, expect, run

DOCUMENTS = ["the cat sat on the mat", "what is the capital of france", "a falcon dives"]
V2 = cohere.ClientV2(api_key="any", base_url=TEXTS, timeout=60)
V1 = cohere.Client(api_key="any", base_url=TEXTS, timeout=60)


def answers():
    ranked = V2.rerank(model="ranker", query="cat", documents=DOCUMENTS, top_n=2)
    scores = [each.relevance_score for each in ranked.results]
    assert len(scores) == 2 and scores == sorted(scores, reverse=True), ranked
    older = V1.rerank(model="ranker", query="cat", documents=[{"text": text} for text in DOCUMENTS])
    assert [each.index for each in older.results][:2] == [each.index for each in ranked.results]
    shown = V1.rerank(model="ranker", query="cat", documents=DOCUMENTS, return_documents=True)
    assert shown.results[0].document.text == DOCUMENTS[shown.results[0].index]


def errors():
    expect(cohere.NotFoundError, lambda: V2.rerank(model="none", query="cat", documents=DOCUMENTS), message="no worker")
    expect(cohere.BadRequestError, lambda: V2.rerank(model="ranker", query="cat", documents=[]), message="documents")


run(answers, errors)
