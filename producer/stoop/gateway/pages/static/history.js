// The questions asked in this browser, newest first, kept in localStorage.

import { textOf } from "./chat.js";
import { byId, fill, h, show } from "./dom.js";

const NAME = "stoop.history";
const MOST = 30;

export function all() {
  try {
    const kept = JSON.parse(localStorage.getItem(NAME) ?? "[]");
    return Array.isArray(kept) ? kept : [];
  } catch {
    return [];
  }
}

export const find = (id) => all().find((entry) => entry.id === id) ?? null;

/** Add an entry, or replace that of the same job or the job `instead`. The oldest go when the browser has no more room. */
export function keep(entry, instead = null) {
  const others = all().filter((each) => each.id !== instead);
  const at = others.findIndex((each) => each.id === entry.id);
  if (at >= 0) others[at] = entry;
  else others.unshift(entry);
  write(others.slice(0, MOST));
}

export function forget() {
  localStorage.removeItem(NAME);
}

function write(entries) {
  for (let count = entries.length; count > 0; count = Math.floor(count / 2)) {
    try {
      return localStorage.setItem(NAME, JSON.stringify(entries.slice(0, count)));
    } catch {
      // full: keep fewer
    }
  }
}

/** One line about an answer. */
export function summary(entry) {
  const output = entry.output;
  if (!output) return entry.partial ? `${entry.status}: ${entry.partial}` : entry.status;
  const text = output.answer ?? output.caption ?? output.message?.content ?? output.transcript?.text;
  if (text !== undefined) return text;
  const places = output.objects ?? output.points ?? (output.gaze ? [output.gaze] : []);
  return places.length === 1 ? "1 place" : `${places.length} places`;
}

/** Draw the list. */
export function draw(current, onChoose) {
  const entries = all();
  show(byId("no-history"), entries.length === 0);
  show(byId("forget"), entries.length > 0);
  fill(byId("history"), entries.map((entry) => row(entry, entry.id === current, onChoose)));
}

function row(entry, current, onChoose) {
  const small = entry.small ? h("img", { src: entry.small, alt: "" }) : h("span", { class: "none" });
  const { question, object, length, messages } = entry.fields;
  const asked = question ?? object ?? length ?? (messages?.length ? textOf(messages.at(-1)) : entry.audio ? entry.name : "");
  const button = h(
    "button",
    { type: "button", "aria-current": current ? "true" : undefined, onclick: () => onChoose(entry.id) },
    small,
    h("span", {}, h("b", {}, entry.skill), " ", asked, h("br"), h("span", { class: "dim" }, summary(entry))),
  );
  return h("li", {}, button);
}
