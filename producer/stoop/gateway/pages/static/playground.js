// The playground: a picture, a question, and the answer as it comes.

import { ApiError, call } from "./api.js";
import { Answer } from "./answer.js";
import { Chat } from "./chat.js";
import { byId, fill, h, show } from "./dom.js";
import { wireKey } from "./frame.js";
import * as history from "./history.js";
import { Picture } from "./picture.js";
import { Recording, wireDrop } from "./recording.js";
import { SKILLS, eye } from "./skills.js";

const SETTINGS = ["temperature", "top_p", "top_k", "max_tokens", "max_objects", "seed"];
const METADATA_BYTES = 900;
const ENDED = ["completed", "failed", "cancelled", "expired"];

const chat = new Chat();
const recording = new Recording(() => answer.segments.clear());
const answer = new Answer(ended, (seconds) => recording.play(seconds));
const picture = new Picture(() => {
  answer.places.clear();
  offerPicture(true);
});

const recorded = (skill) => SKILLS[skill]?.needs === "recording";

let chosen = "query";
let models = [];

function chooseSkill(skill) {
  chosen = skill;
  const radio = document.querySelector(`input[name=skill][value="${skill}"]`);
  if (radio) radio.checked = true;
  const typed = byId("object")?.value;
  fill(byId("fields"), skill === "chat" ? chat.fields(newChat) : SKILLS[skill].fields());
  if (typed && byId("object")) byId("object").value = typed;
  show(byId("picture-card"), !recorded(skill));
  show(byId("recording-card"), recorded(skill));
  byId("asking").classList.toggle("chatting", skill === "chat");
  byId("send").textContent = skill === "chat" ? "Send" : "Ask";
  offerPicture(true);
}

function turnTo(skill) {
  chooseSkill(skill);
  if (skill === "chat" && chat.entry && answer.entry !== chat.entry) choose(chat.entry.id);
}

/** In a chat, a picture goes with one message: by default with the first after it was chosen. */
function offerPicture(sent) {
  if (!byId("with-picture")) return;
  show(byId("with-picture-label"), Boolean(picture.shown));
  byId("with-picture").checked = sent && Boolean(picture.shown);
}

function newChat() {
  chat.clear();
  answer.clear();
  window.history.replaceState(null, "", "./");
  offerPicture(true);
  byId("message").focus();
}

function drawSkills(names) {
  // a job that is shown keeps its skill, whoever serves that now
  const shown = answer.entry?.skill === chosen ? [...names, chosen] : names;
  const tabs = Object.keys(SKILLS).filter((name) => shown.includes(name)).map((name) => {
    const radio = h("input", { type: "radio", name: "skill", value: name, checked: name === chosen, onchange: () => turnTo(name) });
    return h("label", {}, radio, h("span", {}, name));
  });
  fill(byId("skills"), byId("skills").querySelector("legend"), tabs);
  if (!shown.includes(chosen)) chooseSkill(names[0]);
  else if (!byId("fields").hasChildNodes()) chooseSkill(chosen);
}

async function loadModels() {
  models = (await call("GET", "v1/models")).data;
  const options = models.map((model) => h("option", { value: model.id }, model.workers ? model.id : `${model.id} (no worker)`));
  fill(byId("model"), h("option", { value: "" }, "default"), options);
  const living = models.filter((model) => model.workers);
  const known = Object.keys(SKILLS).filter((name) => living.some((model) => runs(model, name)));
  if (known.length) drawSkills(known);
  if (!living.length) byId("state").textContent = "No worker is here yet: a question waits for one.";
}

const runs = (model, skill) => model.skills?.includes(skill === "translate" ? "transcribe" : skill);

/** The model that the user chose; else none if the default model has the skill, or the first that has it. */
function readModel(skill) {
  const able = models.filter((model) => runs(model, skill));
  const model = byId("model").value || (able.some((each) => each.default) ? "" : able[0]?.id);
  return model ? { model } : {};
}

function readSettings() {
  const given = SETTINGS.map((name) => [name, byId(name).valueAsNumber]).filter(([, value]) => !Number.isNaN(value));
  return given.length ? { settings: Object.fromEntries(given) } : {};
}

/** What a link to the job shows beside the answer, if it has room in the job's metadata. */
function metadata(fields, named = {}) {
  const short = Object.entries(named).filter(([, address]) => address?.startsWith("s3://"));
  const told = { playground: { ...fields, ...Object.fromEntries(short) } };
  return new TextEncoder().encode(JSON.stringify(told)).length <= METADATA_BYTES ? { metadata: told } : {};
}

async function ask() {
  const skill = chosen;
  if (skill === "chat") return say();
  const fields = { ...SKILLS[skill].read(), ...readSettings(), ...readModel(skill) };
  if (recorded(skill)) return hear(skill, fields);
  if (SKILLS[skill].needs && !picture.shown && !picture.address) throw new ApiError(0, "no_picture", "Give a picture first.");
  if (skill === "gaze" && !fields.spatial_refs) throw new ApiError(0, "no_eye", "Click on a person’s eye in the picture first.");
  const small = picture.small();
  const image = await picture.located();
  if (image === null && picture.shown) throw new ApiError(0, "no_picture", "This picture is only a small copy: choose it again.");
  const body = { skill, ...fields, ...metadata(fields, { image }) };
  const { id } = await call("POST", "v1/jobs", { body: image === null ? body : { ...body, image } });
  begin({ id, skill, fields, image: kept(image), small, name: picture.name });
}

const kept = (address) => (address?.startsWith("data:") ? null : address);

function begin(asked, instead = null) {
  const entry = { ...asked, status: "queued", at: Date.now() };
  history.keep(entry, instead);
  open(entry);
}

/** Let a model hear the recording. */
async function hear(skill, fields) {
  const { name } = recording;
  const audio = await recording.located();
  if (audio === null) throw new ApiError(0, "no_recording", "Give a recording first.");
  const { id } = await call("POST", "v1/jobs", { body: { skill, ...fields, audio, ...metadata(fields, { audio }) } });
  begin({ id, skill, fields, audio: kept(audio), name });
}

/** Send the next message of the chat. */
async function say() {
  const before = chat.entry;
  if (before && before === answer.entry && answer.running) throw new ApiError(0, "running", "Wait for the answer, or stop it.");
  const field = byId("message");
  const sends = byId("with-picture").checked;
  const small = sends ? picture.small() : (before?.small ?? null);
  const image = sends ? await picture.located() : null;
  if (sends && image === null) throw new ApiError(0, "no_picture", "This picture is only a small copy: choose it again.");
  const messages = chat.next(field.value, image);
  const fields = { messages, ...readSettings(), ...readModel("chat") };
  const { id } = await call("POST", "v1/jobs", { body: { skill: "chat", ...fields, ...metadata(fields) } });
  field.value = "";
  offerPicture(false);
  begin({ id, skill: "chat", fields, image: null, small, name: picture.name }, before?.id);
}

function open(entry) {
  window.history.replaceState(null, "", `#job=${entry.id}`);
  if (entry.skill === "chat") chat.show(entry);
  answer.show(entry);
  history.draw(entry.id, choose);
}

function ended(entry) {
  if (entry.unread) return choose(entry.id);
  if (entry.skill === "chat") chat.end(entry);
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
    if (recorded(entry.skill)) showRecording(entry);
    else if (entry.skill === "chat") offerPicture(false);
    else if (entry.image) picture.use(entry.image, entry.small);
    else picture.recall(entry.small, entry.name ?? "");
    open(entry);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    answer.clear();
    answer.fail(error);
  }
}

/** Show the recording of an entry; the one that plays already can go on. */
function showRecording({ audio, name }) {
  if (audio && recording.address === audio) return;
  if (audio) recording.use(audio);
  else recording.recall(name ?? "");
}

async function told(id) {
  const { status, result = {} } = await call("GET", `v1/jobs/${encodeURIComponent(id)}`);
  const { image = null, audio = null, ...fields } = result.metadata?.playground ?? {};
  const { output, metrics, model, failure, skill = "" } = result;
  // what was asked comes with the result
  const unread = !ENDED.includes(status);
  return { id, skill, fields, image, audio, name: audio ?? image ?? "", small: null, status: unread ? "queued" : status, unread, output, metrics, model, failure };
}

const linked = () => /^#job=([\w.:-]{1,128})$/.exec(location.hash)?.[1];

function start() {
  loadModels().catch((error) => error.status !== 401 && answer.fail(error));
  if (linked()) choose(linked());
}

byId("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (chosen !== "chat") answer.clear();
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
  if (chosen !== "gaze") return;
  const bounds = byId("picture").getBoundingClientRect();
  eye.at = [(event.clientX - bounds.left) / bounds.width, (event.clientY - bounds.top) / bounds.height];
  answer.clear();
  answer.places.set([{ x: eye.at[0], y: eye.at[1] }], "eye");
});

wireDrop((file, isRecording) => {
  const able = [...document.querySelectorAll("input[name=skill]")].map((radio) => radio.value).filter(recorded);
  if (!isRecording || !able.length) return recorded(chosen) ? recording.take(file) : picture.take(file);
  if (!recorded(chosen)) turnTo(able[0]);
  recording.take(file);
});

byId("forget").addEventListener("click", () => (history.forget(), history.draw(null, choose)));
window.addEventListener("hashchange", () => linked() && choose(linked()));
drawSkills(["query", "caption", "detect", "point"]);
history.draw(null, choose);
wireKey(start);
start();
