// OpenAI's own client for Node.js.
import assert from "node:assert/strict";
import { createReadStream } from "node:fs";
import OpenAI, { toFile } from "openai";
import * as places from "./places.mjs";

const { COUNT, SPEECH, MODEL, PICTURE_URL, RECORDING, SHAPES, SPOKEN } = places;
const { STREAMING, TEXTS, UNENDING, UP, WORDS, cancelJob, run } = places;

const client = (base) => new OpenAI({ baseURL: `${base}/v1`, apiKey: "any", timeout: 60_000, maxRetries: 0 });
const said = (content) => ({ model: "moondream3-preview", messages: [{ role: "user", content }] });

async function answers() {
  const models = [];
  for await (const model of client(UP).models.list()) models.push(model.id);
  assert.deepEqual(models, [MODEL]);
  const content = [
    { type: "text", text: COUNT },
    { type: "image_url", image_url: { url: PICTURE_URL, detail: "high" } },
  ];
  const told = await client(UP).chat.completions.create({ model: MODEL, messages: [{ role: "user", content }] });
  assert.equal(told.choices[0].message.content, SHAPES);
  assert.ok(told._request_id.startsWith("req-"));
}

async function streams() {
  const asked = { ...said("tell 12"), stream: true, stream_options: { include_usage: true } };
  let [text, usage] = ["", null];
  for await (const chunk of await client(STREAMING).chat.completions.create(asked)) {
    text += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, WORDS);
  assert.ok(usage.total_tokens > 0);
  const runner = client(STREAMING).chat.completions.stream(said("tell 12"));
  assert.equal(await runner.finalContent(), WORDS);
}

async function errors() {
  const create = (base, body) => client(base).chat.completions.create(body);
  await assert.rejects(create(UP, { ...said("?"), model: "no-model" }), OpenAI.NotFoundError);
  const wrong = await create(UP, { ...said("?"), model: MODEL, n: 2 }).catch((error) => error);
  assert.ok(wrong instanceof OpenAI.BadRequestError);
  assert.deepEqual([wrong.code, wrong.param], ["unsupported_parameter", "n"]);
  const broken = async () => {
    for await (const chunk of await create(STREAMING, { ...said(UNENDING), stream: true })) {
      if (chunk.choices[0].delta.content) await cancelJob(chunk.id);
    }
  };
  await assert.rejects(broken(), (error) => error instanceof OpenAI.APIError && /cancelled/.test(error.message));
}

async function cancel() {
  for await (const chunk of await client(STREAMING).chat.completions.create({ ...said(UNENDING), stream: true })) {
    if (chunk.choices[0].delta.content) break;
  }
  const leaving = new AbortController();
  const waiting = client(STREAMING).chat.completions.create(said(UNENDING), { signal: leaving.signal });
  setTimeout(() => leaving.abort(), 500);
  await assert.rejects(waiting, OpenAI.APIUserAbortError);
}

async function vectors() {
  const told = await client(TEXTS).embeddings.create({ model: "embedder", input: ["the cat", "a dog"] });
  assert.deepEqual([told.data.length, told.data[0].embedding.length], [2, 48]);
}

async function hears() {
  const { transcriptions, translations } = client(SPEECH).audio;
  const given = (more) => ({ model: "speech", file: createReadStream(RECORDING), ...more });
  assert.equal((await transcriptions.create(given({}))).text, SPOKEN);
  const timed = { response_format: "verbose_json", timestamp_granularities: ["word", "segment"] };
  const verbose = await transcriptions.create(given(timed));
  assert.deepEqual([verbose.segments.length, verbose.segments[1].start, verbose.words.length], [2, 30, 4]);
  assert.match(await transcriptions.create(given({ response_format: "srt" })), /^1\n00:00:00,000 --> 00:00:30,000\nBand 11\./);
  let [text, done] = ["", null];
  for await (const event of await transcriptions.create(given({ stream: true }))) {
    if (event.type === "transcript.text.delta") text += event.delta;
    else done = event.text;
  }
  assert.deepEqual([text, done], [SPOKEN, SPOKEN]);
  assert.match((await translations.create(given({}))).text, /^The loudest band is 11/);
  await assert.rejects(transcriptions.create(given({ model: "whisper-1" })), OpenAI.NotFoundError);
  const wrong = { model: "speech", file: await toFile(Buffer.from("no sound"), "a.mp3") };
  await assert.rejects(transcriptions.create(wrong), OpenAI.BadRequestError);
}

async function batches() {
  const line = { custom_id: "one", method: "POST", url: "/v1/chat/completions" };
  const body = { model: MODEL, messages: [{ role: "user", content: "What?" }] };
  const file = await toFile(Buffer.from(JSON.stringify({ ...line, body })), "lines.jsonl");
  const stored = await client(UP).files.create({ file, purpose: "batch" });
  let batch = await client(UP).batches.create({
    input_file_id: stored.id,
    endpoint: "/v1/chat/completions",
    completion_window: "24h",
  });
  while (!["completed", "failed", "expired", "cancelled"].includes(batch.status)) {
    await new Promise((resolve) => setTimeout(resolve, 200));
    batch = await client(UP).batches.retrieve(batch.id);
  }
  assert.deepEqual([batch.status, batch.request_counts.completed], ["completed", 1]);
  const written = await (await client(UP).files.content(batch.output_file_id)).text();
  assert.equal(JSON.parse(written).custom_id, "one");
}

await run(answers, streams, errors, cancel, vectors, hears, batches);
