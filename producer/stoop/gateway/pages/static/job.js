// One job for an operator: its times, its record, its dead letter, and its answer on its picture.

import { ApiError, call, load } from "./api.js";
import { byId, fill, h, show } from "./dom.js";
import { Places } from "./overlay.js";

const TIMES = [["queued_at", "Queued"], ["started_at", "Claimed"], ["finished_at", "Ended"]];

/** Show the job of this id. */
export async function showJob(id) {
  byId("job-id").value = id;
  show(byId("job-error"), false);
  fill(byId("job"));
  try {
    const { record, letter, id: found } = await call("GET", `v1/jobs/${encodeURIComponent(id)}/record`);
    const { status, result = null } = await call("GET", `v1/jobs/${encodeURIComponent(found)}`).catch(() => ({}));
    const job = parsed(letter?.job);
    const { [0]: asked } = [job, result?.metadata?.playground].filter(Boolean);
    fill(byId("job"), timeline(record, result), facts({ job: found, state: status ?? record.state, ...shown(record, letter) }), ...answer(result));
    if (letter) byId("job").append(hidden("The job as it came", () => h("pre", {}, job ? JSON.stringify(job, null, 2) : letter.job)));
    if (asked) byId("job").append(hidden("Question and picture", () => question(asked, result?.output ?? {})));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    byId("job-error").textContent = error.message;
    show(byId("job-error"), true);
  }
}

function parsed(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" ? value : null;
  } catch {
    return null;
  }
}

function shown(record, letter) {
  const { lane, attempt, crashes, worker } = { ...record, ...(letter ?? {}) };
  return { lane, attempt, crashes, worker, failure: letter && `${letter.code}: ${letter.message}` };
}

function timeline(record, result) {
  const times = TIMES.filter(([name]) => Number(record[name]) > 0).map(([name, label]) => [label, Number(record[name])]);
  const claimed = Number(record.started_at);
  if (claimed && result?.metrics?.ttft_ms) times.splice(2, 0, ["First token", claimed + result.metrics.ttft_ms]);
  const first = times[0]?.[1];
  const steps = times.map(([label, at]) => {
    const after = at === first ? new Date(at).toLocaleString() : `after ${((at - first) / 1000).toFixed(2)} s`;
    return h("li", {}, h("b", {}, label), h("br"), h("span", { class: "dim" }, after));
  });
  return h("ol", { class: "timeline", "aria-label": "Timeline" }, steps);
}

function facts(values) {
  const known = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return h("dl", { class: "facts" }, known.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function answer(result) {
  if (!result) return [];
  const { answer: text, caption, message, objects, points } = result.output ?? {};
  const told = text ?? caption ?? message?.content ?? (objects || points ? `${(objects ?? points).length} places` : result.failure?.message);
  return told === undefined ? [] : [hidden("Answer", () => h("p", { class: "text answer" }, told))];
}

/** What users wrote stays closed until it is asked for. */
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
  const text = asked.question ?? asked.object ?? asked.length ?? "";
  if (asked.image?.startsWith("s3://")) {
    load(`v1/images?address=${encodeURIComponent(asked.image)}`).then((blob) => {
      image.src = URL.createObjectURL(blob);
      new Places(layer, list).set(output.objects ?? output.points ?? [], asked.object);
      show(frame, true);
    }, () => {});
  }
  return h("div", {}, h("p", { class: "text" }, text), frame, list);
}
