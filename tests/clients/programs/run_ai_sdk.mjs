// Vercel's AI SDK with its provider for servers that speak OpenAI's interface.
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, embed, generateText, jsonSchema, streamText, tool } from "ai";
import { COUNT, MODEL, PICTURE, SHAPES, STREAMING, TEXTS, UNENDING, UP, WORDS, cancelJob, run } from "./places.mjs";

const provider = (base) => createOpenAICompatible({ name: "stoop", baseURL: `${base}/v1`, apiKey: "any" });
const streaming = provider(STREAMING)("moondream3-preview");

async function answers() {
  const content = [
    { type: "text", text: COUNT },
    { type: "image", image: PICTURE },
  ];
  const told = await generateText({ model: provider(UP)(MODEL), messages: [{ role: "user", content }], temperature: 0 });
  assert.equal(told.text, SHAPES);
  assert.ok(told.usage.totalTokens > 0);
}

async function streams() {
  const told = streamText({ model: streaming, prompt: "tell 12" });
  let text = "";
  for await (const piece of told.textStream) text += piece;
  assert.equal(text, WORDS);
  assert.equal(await told.finishReason, "stop");
}

async function errors() {
  const ask = (more) => generateText({ model: provider(UP)(MODEL), prompt: "?", maxRetries: 0, ...more });
  await assert.rejects(ask({ model: provider(UP)("no-model") }), (error) => {
    return APICallError.isInstance(error) && error.statusCode === 404 && /no worker serves/.test(error.message);
  });
  const tools = { f: tool({ description: "?", inputSchema: jsonSchema({ type: "object", properties: {} }) }) };
  await assert.rejects(ask({ tools }), /tools/);
  const met = [];
  const onError = ({ error }) => met.push(error);
  const told = streamText({ model: streaming, prompt: UNENDING, includeRawChunks: true, onError });
  let job;
  for await (const part of told.fullStream) {
    if (part.type === "raw") job ??= part.rawValue.id;
    if (part.type === "text-delta") await cancelJob(job);
  }
  assert.match(String(met[0]?.message ?? JSON.stringify(met[0])), /cancelled/);
}

async function cancel() {
  const leaving = new AbortController();
  const told = streamText({ model: streaming, prompt: UNENDING, abortSignal: leaving.signal });
  for await (const part of told.fullStream) {
    if (part.type === "text-delta") leaving.abort();
  }
}

async function vectors() {
  const told = await embed({ model: provider(TEXTS).textEmbeddingModel("embedder"), value: "the cat" });
  assert.equal(told.embedding.length, 48);
}

await run(answers, streams, errors, cancel, vectors);
