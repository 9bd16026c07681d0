// The segments of a transcript, each with its time.

import { h } from "./dom.js";

const two = (value) => String(value).padStart(2, "0");

/** Write a time (s) as a player does. */
function clock(seconds) {
  const whole = Math.floor(seconds);
  const hours = Math.floor(whole / 3600);
  const rest = `${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  return hours ? `${hours}:${rest}` : rest;
}

/** The list of segments in `list`; `onTime(seconds)` is called for a time that the user chose. */
export class Segments {
  constructor(list, onTime) {
    this.list = list;
    this.onTime = onTime;
  }

  clear() {
    this.list.replaceChildren();
  }

  add({ start, end, text }) {
    const title = `Play from ${clock(start)} to ${clock(end)}`;
    const time = h("button", { type: "button", class: "link", "aria-label": title, onclick: () => this.onTime(start) }, clock(start));
    this.list.append(h("li", {}, time, h("span", { class: "text" }, text.trim())));
  }
}

/** What the history keeps of a transcript. */
export function slim(output) {
  if (!output?.transcript) return output;
  const segments = output.transcript.segments.map(({ start, end, text }) => ({ start, end, text }));
  return { transcript: { ...output.transcript, words: undefined, segments } };
}
