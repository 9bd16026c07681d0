// One job for an operator: its times and attempts, its record, its dead letter, and its answer on its picture.

import { ApiError, call, follow, load } from "./api.js";
import { picturesOf, textOf } from "./chat.js";
import { byId, copy, fill, h, show } from "./dom.js";
import { Places } from "./overlay.js";

const ENDED = ["completed", "failed", "cancelled", "expired"];
const TURNS = ["started", "restarted", "finished", "failed", "cancelled", "expired"];
let following = null;
let drawings = 0; // a slow answer must not replace a newer drawing

/** Show the job of this id, and follow it until it ends. */
export async function showJob(id) {
  following?.abort();
  const { signal } = (following = new AbortController());
  byId("job-id").value = id;
  const state = await draw(id);
  if (signal.aborted || state === null || ENDED.includes(state)) return;
  const onEvent = (event) => void (TURNS.includes(event.type) && draw(id));
  follow(`v1/jobs/${encodeURIComponent(id)}/events`, { signal, onEvent }).catch(fail);
}

function fail(error) {
  if (!(error instanceof ApiError)) throw error;
  byId("job-error").textContent = error.message;
  show(byId("job-error"), true);
}

/** Draw the job as it is now, and return its state. */
async function draw(id) {
  const drawing = ++drawings;
  show(byId("job-error"), false);
  try {
    const told = await call("GET", `v1/jobs/${encodeURIComponent(id)}/record`);
    const { status, result = null } = await call("GET", `v1/jobs/${encodeURIComponent(told.id)}`).catch(() => ({}));
    const state = status ?? told.record.state;
    if (drawing === drawings) fill(byId("job"), actions(told, state), timeline(told, result), facts(told, state, result), ...closed(told, result));
    return state;
  } catch (error) {
    if (drawing !== drawings) return null;
    fill(byId("job"));
    fail(error);
    return null;
  }
}

function actions(told, state) {
  const act = (label, method, path, body) =>
    h("button", { type: "button", onclick: () => call(method, path, { body }).then(() => showJob(told.id), fail) }, label);
  const buttons = [h("button", { type: "button", class: "quiet", onclick: (event) => copy(event.currentTarget, told.id) }, "Copy id")];
  if (state && !ENDED.includes(state)) buttons.push(act("Cancel job", "DELETE", `v1/jobs/${encodeURIComponent(told.id)}`));
  if (told.letter) buttons.push(act("Redrive job", "POST", "v1/dead/redrive", { letters: [told.letter.letter] }));
  return h("div", { class: "row" }, h("b", { class: "grow" }, told.id), buttons);
}

/** The job's way, from one time to the next. */
function steps({ record, attempts }, result) {
  const found = [["Queued", Number(record.queued_at)]];
  for (const { number, worker, claimed_at: claimed, lost_at: lost } of attempts) {
    const which = attempts.length > 1 ? `Attempt ${number}: ` : "";
    found.push([`${which}${which ? "c" : "C"}laimed`, claimed, worker], [`${which}worker lost`, lost, worker]);
  }
  const { fetch_time_ms: fetch = 0, image_time_ms: image = 0, ttft_ms: ttft } = result?.metrics ?? {};
  if (ttft && record.started_at) found.push(["First token", Number(record.started_at) + fetch + image + ttft]);
  found.push(["Ended", Number(record.finished_at)]);
  return found.filter(([, at]) => at > 0);
}

function timeline(told, result) {
  const found = steps(told, result);
  const first = found[0]?.[1];
  const entries = found.map(([label, at, worker]) => {
    const after = at === first ? new Date(at).toLocaleString() : `after ${((at - first) / 1000).toFixed(2)} s`;
    const where = worker ? [h("br"), h("span", { class: "dim" }, worker)] : [];
    return h("li", {}, h("b", {}, label), h("br"), h("span", { class: "dim" }, after), where);
  });
  return h("ol", { class: "timeline", "aria-label": "Timeline" }, entries);
}

function facts({ record, letter }, state, result) {
  const { lane, attempt, crashes, worker } = { ...record, ...(letter ?? {}) };
  const failure = letter ?? result?.failure;
  const { input_tokens: read, output_tokens: written } = result?.metrics ?? {};
  const tokens = read || written ? `${read} in, ${written} out` : undefined;
  const values = { state, skill: result?.skill, model: result?.model ?? record.model, lane, attempt, crashes, worker, tokens,
    failure: failure && `${failure.code}: ${failure.message}` };
  const known = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return h("dl", { class: "facts" }, known.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/** What users wrote and got stays closed until it is asked for. */
function closed({ letter, job: text }, result) {
  const came = letter?.job || text;
  const job = parsed(came);
  const asked = job ?? result?.metadata?.playground;
  const output = result?.output;
  const parts = [];
  if (output || asked) parts.push(hidden("Question, picture and answer", () => question(asked ?? {}, output ?? {})));
  if (came) parts.push(hidden("The job as it came", () => h("pre", {}, job ? JSON.stringify(job, null, 2) : came)));
  if (!asked) parts.push(h("p", { class: "dim" }, "The queue forgets what a job asked when the job ends; its answer stays for a day."));
  return parts;
}

function parsed(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" ? value : null;
  } catch {
    return null;
  }
}

function hidden(title, build) {
  const details = h("details", {}, h("summary", {}, title));
  details.addEventListener("toggle", () => details.children.length === 1 && details.append(build()), { once: true });
  return details;
}

function question(asked, output) {
  const list = h("ol", { class: "places" });
  const layer = h("div", { class: "layer" });
  const image = h("img", { alt: "The picture of the job" });
  const frame = h("div", { class: "frame", hidden: true }, image, layer);
  const places = output.objects ?? output.points ?? (output.gaze ? [output.gaze] : []);
  const { messages } = asked;
  const address = asked.image ?? messages?.flatMap(picturesOf).at(-1);
  const text = asked.question ?? asked.object ?? asked.length ?? (messages?.length ? textOf(messages.at(-1)) : (asked.audio ?? ""));
  const said = output.answer ?? output.caption ?? output.message?.content ?? output.transcript?.text ?? (output.objects || output.points ? `${places.length} ${places.length === 1 ? "place" : "places"}` : null);
  const drawn = (source) => {
    image.src = source;
    show(frame, true);
  };
  new Places(layer, list).set(places, asked.object);
  if (address?.startsWith("data:image/")) drawn(address);
  if (address?.startsWith("s3://")) {
    load(`v1/images?address=${encodeURIComponent(address)}`).then((blob) => drawn(URL.createObjectURL(blob)), () => {});
  }
  return h("div", {}, h("p", { class: "text" }, text), frame, list, said === null ? null : h("p", { class: "text answer" }, said));
}
