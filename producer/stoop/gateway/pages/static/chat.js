// A chat: the messages so far, above the answer that is being written.

import { load } from "./api.js";
import { byId, fill, h, show } from "./dom.js";

/** The text of a message. */
export function textOf(message) {
  if (typeof message.content === "string") return message.content;
  return message.content.filter((part) => part.type === "text").map((part) => part.text).join("\n");
}

const answerOf = (entry) => entry.output?.message?.content ?? entry.partial;

/** What was said up to the end of a job; a message that got no answer is left out. */
function messagesAfter(entry) {
  const asked = entry.fields.messages ?? [];
  const said = answerOf(entry);
  return said ? [...asked, { role: "assistant", content: said }] : asked.slice(0, -1);
}

/** The addresses of a message's pictures. */
export function picturesOf(message) {
  if (typeof message.content === "string") return [];
  return message.content.filter((part) => part.type === "image_url").map((part) => part.image_url.url);
}

function thumbnail(address) {
  const image = h("img", { alt: "Picture of this message" });
  if (address.startsWith("data:")) image.src = address;
  else if (address.startsWith("s3://")) {
    load(`v1/images?address=${encodeURIComponent(address)}`).then(
      (blob) => {
        image.src = URL.createObjectURL(blob);
        image.addEventListener("load", () => URL.revokeObjectURL(image.src), { once: true });
      },
      () => image.replaceWith(address),
    );
  } else return h("span", { class: "dim" }, address);
  return image;
}

function bubble(message) {
  const said = message.role === "assistant" ? "Answer" : message.role === "user" ? "You" : "Instructions";
  const pictures = picturesOf(message).map(thumbnail);
  return h("li", { class: message.role }, h("b", { class: "dim" }, said), pictures, h("p", { class: "text" }, textOf(message)));
}

/** The chat on the page. */
export class Chat {
  constructor() {
    this.clear();
  }

  /** Begin anew. */
  clear() {
    this.entry = null;
    this._draw([]);
  }

  /** Show a chat by its last job: the messages that the job was asked with. */
  show(entry) {
    this.entry = entry;
    this._draw(entry.fields.messages ?? []);
  }

  /** Take in that the last job has ended. If nothing came, the message returns to its field. */
  end(entry) {
    if (answerOf(entry) || !entry.fields.messages?.length) return;
    this._draw(messagesAfter(entry));
    byId("message").value ||= textOf(entry.fields.messages.at(-1));
  }

  /** Return the messages of the next job: those so far, and what the user says now. */
  next(text, image) {
    const before = this.entry ? messagesAfter(this.entry) : [];
    const instructions = byId("instructions").value.trim();
    const first = instructions && before.length === 0 ? [{ role: "system", content: instructions }] : [];
    const content = image === null ? text : [{ type: "image_url", image_url: { url: image } }, { type: "text", text }];
    return [...first, ...before, { role: "user", content }];
  }

  _draw(messages) {
    fill(byId("thread"), messages.map(bubble));
    show(byId("thread"), messages.length > 0);
  }

  /** The fields of the form. */
  fields(onNew) {
    const message = h("textarea", { id: "message", required: true, rows: "2", "aria-describedby": "message-hint" });
    message.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.ctrlKey || event.metaKey || event.isComposing) return;
      event.preventDefault();
      message.form.requestSubmit();
    });
    return [
      h("label", {}, "Message ", message),
      h("p", { id: "message-hint", class: "dim hint" }, "Enter sends, Shift+Enter makes a new line."),
      h("div", { class: "row" },
        h("label", { class: "check grow", id: "with-picture-label" }, h("input", { id: "with-picture", type: "checkbox" }), " Send the picture with it"),
        h("button", { type: "button", class: "quiet", onclick: onNew }, "New chat")),
      h("details", {}, h("summary", {}, "Instructions"),
        h("label", {}, "The way to answer, from the start of the chat ", h("textarea", { id: "instructions", rows: "2" }))),
    ];
  }
}
