// One job on the page: follows its events, through reloads and lost connections, and shows what it has so far.

import { ApiError, call, follow } from "./api.js";
import { byId, copy, fill, h, show } from "./dom.js";
import { Places } from "./overlay.js";
import { snippets } from "./snippets.js";
import { Segments, slim } from "./transcript.js";

const ENDINGS = { finished: "completed", failed: "failed", cancelled: "cancelled", expired: "expired" };
const SAID = {
  queued: "Waiting for a worker",
  started: "Running",
  restarted: "A worker was lost: the answer starts again",
  completed: "",
  failed: "Failed",
  cancelled: "Stopped",
  expired: "Expired",
};

const METRICS = [
  ["queue_time_ms", "waited", milliseconds],
  ["ttft_ms", "first token", milliseconds],
  ["decode_time_ms", "decode", milliseconds],
  ["input_tokens", "tokens in", String],
  ["cached_tokens", "from cache", String],
  ["output_tokens", "tokens out", String],
];

function milliseconds(value) {
  return value >= 1000 ? `${(value / 1000).toFixed(2)} s` : `${value.toFixed(value < 10 ? 1 : 0)} ms`;
}

/** The panel of the answer. `onEnd(entry)` is called when the job has ended, `onTime(s)` for a time of a recording. */
export class Answer {
  constructor(onEnd, onTime) {
    this.onEnd = onEnd;
    this.segments = new Segments(byId("segments"), onTime);
    this.places = new Places(byId("layer"), byId("places"));
    this.following = null;
    byId("stop").addEventListener("click", () => this.stop());
    this.clear();
  }

  clear() {
    this.following?.abort();
    this.following = null;
    this.entry = null;
    this._empty();
    this._say("");
    show(byId("after"), false);
    show(byId("error"), false);
    show(byId("stop"), false);
  }

  /** Show an entry of the history, or a job that only its id is known of. */
  show(entry) {
    this.clear();
    this.entry = entry;
    if (entry.output) return this._end(entry.status, entry);
    if (!this.running) return this._end(entry.status, entry);
    this._follow(entry);
  }

  /** Whether the job's answer is still to come. */
  get running() {
    return this.entry !== null && !(this.entry.status in SAID && !["queued", "started"].includes(this.entry.status));
  }

  /** Show why a request got no answer. */
  fail(error) {
    byId("error").textContent = error.message;
    show(byId("error"), true);
    this._say("");
  }

  async stop() {
    const id = this.entry?.id;
    byId("stop").disabled = true;
    try {
      await call("DELETE", `v1/jobs/${encodeURIComponent(id)}`);
    } catch (error) {
      this.fail(error);
    } finally {
      byId("stop").disabled = false;
    }
  }

  async _follow(entry) {
    const following = new AbortController();
    this.following = following;
    this._say(SAID.queued);
    show(byId("stop"), true);
    try {
      await follow(`v1/jobs/${encodeURIComponent(entry.id)}/events`, {
        signal: following.signal,
        onEvent: (event) => this._take(entry, event),
        onLost: (lost) => lost && this._say("The connection is lost: trying again"),
      });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.fail(error);
      show(byId("stop"), false);
    }
  }

  _take(entry, event) {
    if (event.type in ENDINGS) {
      const result = event.result ?? {};
      const partial = result.output ? undefined : byId("answer").textContent;
      Object.assign(entry, { partial, output: slim(result.output), metrics: result.metrics, model: result.model, failure: event.failure });
      this._end(ENDINGS[event.type], entry);
      return true;
    }
    if (event.type === "restarted") this._empty();
    if (event.type in SAID) this._say(SAID[event.type]);
    if (event.type === "delta") this._add("answer", "answer", event.text);
    if (event.type === "reasoning") this._add("reasoning-text", "reasoning", event.text);
    if (event.type === "segment") {
      this._add("answer", "answer", byId("answer").textContent ? event.segment.text : event.segment.text.trimStart());
      this.segments.add(event.segment);
    }
    if (event.type === "object") this.places.add(event.object, entry.fields.object);
    if (["delta", "reasoning", "object", "segment"].includes(event.type)) this._say(SAID.started);
    return false;
  }

  _end(status, entry) {
    entry.status = status;
    show(byId("stop"), false);
    this._say(SAID[status] ?? status);
    if (entry.failure) this.fail(new ApiError(0, entry.failure.code, `${entry.failure.message} (${entry.failure.code})`));
    if (entry.output) this._output(entry);
    else if (entry.partial && !byId("answer").textContent) this._add("answer", "answer", entry.partial);
    this._metrics(entry.metrics ?? {});
    this._snippets(entry);
    show(byId("after"), true);
    this.onEnd(entry);
  }

  _output(entry) {
    const { answer, caption, message, transcript, reasoning, objects, points, gaze } = entry.output;
    const text = answer ?? caption ?? message?.content ?? (transcript && (transcript.text || "Nobody speaks in the recording."));
    const places = objects ?? points ?? (gaze ? [gaze] : []);
    this._empty();
    if (reasoning) this._add("reasoning-text", "reasoning", reasoning.text);
    if (text !== undefined) this._add("answer", "answer", text);
    else if (places.length === 0) this._add("answer", "answer", gaze === null ? "Looks at nothing in the picture." : "Nothing found.");
    this.places.set(places, entry.fields.object);
    transcript?.segments.forEach((segment) => this.segments.add(segment));
    for (const each of reasoning?.grounding ?? []) {
      const said = reasoning.text.slice(each.start_idx, each.end_idx);
      each.points.forEach(([x, y]) => this.places.add({ x, y }, said));
    }
  }

  _add(id, shown, text) {
    byId(id).append(text);
    show(byId(shown), true);
  }

  _empty() {
    for (const id of ["answer", "reasoning-text"]) byId(id).textContent = "";
    show(byId("answer"), false);
    show(byId("reasoning"), false);
    this.places.clear();
    this.segments.clear();
  }

  _say(text) {
    byId("state").textContent = text;
  }

  _metrics(metrics) {
    const known = METRICS.filter(([name]) => metrics[name] !== undefined);
    const pairs = known.map(([name, label, write]) => h("div", {}, h("dt", {}, label), h("dd", {}, write(metrics[name]))));
    if (metrics.output_tokens > 1 && metrics.decode_time_ms > 0) {
      const rate = (1000 * metrics.output_tokens) / metrics.decode_time_ms;
      pairs.push(h("div", {}, h("dt", {}, "speed"), h("dd", {}, `${rate.toFixed(rate < 10 ? 1 : 0)} tokens/s`)));
    }
    fill(byId("metrics"), pairs);
  }

  _snippets(entry) {
    const buttons = snippets(entry).map(([name, text]) => copying(`Copy as ${name}`, text));
    const link = new URL(`./#job=${entry.id}`, document.baseURI).href;
    fill(byId("snippets"), buttons, copying("Copy link", link));
  }
}

function copying(label, text) {
  return h("button", { type: "button", class: "quiet", onclick: (event) => copy(event.currentTarget, text) }, label);
}
