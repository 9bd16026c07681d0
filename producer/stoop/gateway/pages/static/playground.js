// The playground: a picture, a question, and the answer as it comes.

import { ApiError, call } from "./api.js";
import { Answer } from "./answer.js";
import { byId, fill, h, show } from "./dom.js";
import { wireKey } from "./frame.js";
import * as history from "./history.js";
import { Picture } from "./picture.js";

const SETTINGS = ["temperature", "top_p", "max_tokens", "max_objects", "seed"];
const METADATA_BYTES = 900;
const ENDED = ["completed", "failed", "cancelled", "expired"];

const line = (id, label, value) => h("label", {}, label, " ", h("input", { id, required: true, value, autocomplete: "off" }));

const SKILLS = {
  query: {
    fields: () => [
      h("label", {}, "Question ", h("textarea", { id: "question", required: true, rows: "2" }, "What is in this picture?")),
      h("label", { class: "check" }, h("input", { id: "reasoning-wanted", type: "checkbox" }), " Show its reasoning"),
    ],
    read: () => ({ question: byId("question").value, ...(byId("reasoning-wanted").checked ? { reasoning: true } : {}) }),
    write: ({ question, reasoning }) => {
      byId("question").value = question ?? "";
      byId("reasoning-wanted").checked = Boolean(reasoning);
    },
  },
  caption: {
    needsPicture: true,
    fields: () => {
      const lengths = ["short", "normal", "long"].map((each) => h("option", { selected: each === "normal" }, each));
      return [h("label", {}, "Length ", h("select", { id: "length" }, lengths))];
    },
    read: () => ({ length: byId("length").value }),
    write: ({ length }) => (byId("length").value = length ?? "normal"),
  },
  detect: {
    needsPicture: true,
    fields: () => [line("object", "Find every", "square")],
    read: () => ({ object: byId("object").value }),
    write: ({ object }) => (byId("object").value = object ?? ""),
  },
  point: {
    needsPicture: true,
    fields: () => [line("object", "Point at every", "square")],
    read: () => ({ object: byId("object").value }),
    write: ({ object }) => (byId("object").value = object ?? ""),
  },
  gaze: {
    needsPicture: true,
    fields: () => [h("p", { class: "dim" }, "Click on a person’s eye in the picture.")],
    read: () => ({ spatial_refs: eye ? [eye] : undefined }),
    write: ({ spatial_refs }) => (eye = spatial_refs?.[0] ?? null),
  },
};

let eye = null;
const answer = new Answer(ended);
const picture = new Picture(() => answer.places.clear());

const chosen = () => document.querySelector("input[name=skill]:checked")?.value ?? "query";

function chooseSkill(skill) {
  const radio = document.querySelector(`input[name=skill][value="${skill}"]`);
  if (radio) radio.checked = true;
  const typed = byId("object")?.value;
  fill(byId("fields"), SKILLS[skill].fields());
  if (typed && byId("object")) byId("object").value = typed;
}

function drawSkills(names) {
  const before = chosen();
  const tabs = Object.keys(SKILLS).filter((name) => names.includes(name)).map((name) =>
    h("label", {}, h("input", { type: "radio", name: "skill", value: name, onchange: () => chooseSkill(name) }), h("span", {}, name)),
  );
  const legend = byId("skills").querySelector("legend");
  fill(byId("skills"), legend, tabs);
  if (!document.querySelector(`input[name=skill][value="${before}"]`)) return chooseSkill(names[0]);
  document.querySelector(`input[name=skill][value="${before}"]`).checked = true;
  if (!byId("fields").hasChildNodes()) chooseSkill(before);
}

async function loadModels() {
  const { data } = await call("GET", "v1/models");
  const options = data.map((model) => h("option", { value: model.id }, model.workers ? model.id : `${model.id} (no worker)`));
  fill(byId("model"), h("option", { value: "" }, "default"), options);
  const skills = new Set(data.flatMap((model) => model.skills ?? []));
  const known = Object.keys(SKILLS).filter((name) => skills.has(name));
  if (known.length) drawSkills(known);
  if (!data.length) byId("state").textContent = "No worker is here yet: a question waits for one.";
}

function readSettings() {
  const given = SETTINGS.map((name) => [name, byId(name).valueAsNumber]).filter(([, value]) => !Number.isNaN(value));
  return given.length ? { settings: Object.fromEntries(given) } : {};
}

/** What a link to the job shows beside the answer, if it has room in the job's metadata. */
function metadata(fields, image) {
  const told = { playground: { ...fields, ...(image?.startsWith("s3://") ? { image } : {}) } };
  return new TextEncoder().encode(JSON.stringify(told)).length <= METADATA_BYTES ? { metadata: told } : {};
}

async function ask() {
  const skill = chosen();
  const fields = { ...SKILLS[skill].read(), ...readSettings(), ...(byId("model").value ? { model: byId("model").value } : {}) };
  if (SKILLS[skill].needsPicture && !picture.shown && !picture.address) throw new ApiError(0, "no_picture", "Give a picture first.");
  if (skill === "gaze" && !fields.spatial_refs) throw new ApiError(0, "no_eye", "Click on a person’s eye in the picture first.");
  const small = picture.small();
  const image = await picture.located();
  if (image === null && picture.shown) throw new ApiError(0, "no_picture", "This picture is only a small copy: choose it again.");
  const body = { skill, ...fields, ...metadata(fields, image) };
  const { id } = await call("POST", "v1/jobs", { body: image === null ? body : { ...body, image } });
  const kept = image?.startsWith("data:") ? null : image;
  const entry = { id, skill, fields, image: kept, small, name: picture.name, status: "queued", at: Date.now() };
  history.keep(entry);
  open(entry);
}

function open(entry) {
  window.history.replaceState(null, "", `#job=${entry.id}`);
  answer.show(entry);
  history.draw(entry.id, choose);
}

function ended(entry) {
  if (entry.unread) return choose(entry.id);
  if (history.find(entry.id)) history.keep(entry);
  history.draw(entry.id, choose);
}

/** Show a job of the history, or one that a link names. */
async function choose(id) {
  try {
    const entry = history.find(id) ?? (await told(id));
    if (entry.skill in SKILLS) {
      chooseSkill(entry.skill);
      SKILLS[entry.skill].write(entry.fields);
    }
    if (entry.image) picture.use(entry.image, entry.small);
    else picture.recall(entry.small, entry.name ?? "");
    open(entry);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    answer.clear();
    answer.fail(error);
  }
}

async function told(id) {
  const { status, result = {} } = await call("GET", `v1/jobs/${encodeURIComponent(id)}`);
  const { image = null, ...fields } = result.metadata?.playground ?? {};
  const { output, metrics, model, failure, skill = "" } = result;
  // what was asked comes with the result
  const unread = !ENDED.includes(status);
  return { id, skill, fields, image, small: null, status: unread ? "queued" : status, unread, output, metrics, model, failure };
}

const linked = () => /^#job=([\w.:-]{1,128})$/.exec(location.hash)?.[1];

function start() {
  loadModels().catch((error) => error.status !== 401 && answer.fail(error));
  if (linked()) choose(linked());
}

byId("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  answer.clear();
  byId("send").disabled = true;
  byId("state").textContent = "Sending";
  try {
    await ask();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    answer.fail(error);
  } finally {
    byId("send").disabled = false;
  }
});

byId("ask").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("ask").requestSubmit();
});

byId("frame").addEventListener("click", (event) => {
  if (chosen() !== "gaze") return;
  const bounds = byId("picture").getBoundingClientRect();
  eye = [(event.clientX - bounds.left) / bounds.width, (event.clientY - bounds.top) / bounds.height];
  answer.clear();
  answer.places.set([{ x: eye[0], y: eye[1] }], "eye");
});

byId("forget").addEventListener("click", () => (history.forget(), history.draw(null, choose)));
window.addEventListener("hashchange", () => linked() && choose(linked()));
drawSkills(["query", "caption", "detect", "point"]);
history.draw(null, choose);
wireKey(start);
start();
