// The skills of the playground, each with its form.

import { byId, h } from "./dom.js";

const line = (id, label, value) => h("label", {}, label, " ", h("input", { id, required: true, value, autocomplete: "off" }));

/** The place in the picture that the user clicked on for a gaze. */
export const eye = { at: null };

const speech = {
  needs: "recording",
  fields: () => [
    h("label", {}, "Spoken language ", h("input", { id: "language", pattern: "[a-z]{2,3}", title: "a code such as en", placeholder: "en, de, … or heard by the model", autocomplete: "off" })),
    h("label", {}, "Names and words to expect ", h("input", { id: "prompt", autocomplete: "off" })),
  ],
  read: () => Object.fromEntries(["language", "prompt"].filter((id) => byId(id).value.trim()).map((id) => [id, byId(id).value.trim()])),
  write: (fields) => ["language", "prompt"].forEach((id) => (byId(id).value = fields[id] ?? "")),
};

/** The forms of the skills: `fields` makes one, `read` gives what a job says, and `write` puts that back. */
export const SKILLS = {
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
    needs: "picture",
    fields: () => {
      const lengths = ["short", "normal", "long"].map((each) => h("option", { selected: each === "normal" }, each));
      return [h("label", {}, "Length ", h("select", { id: "length" }, lengths))];
    },
    read: () => ({ length: byId("length").value }),
    write: ({ length }) => (byId("length").value = length ?? "normal"),
  },
  detect: {
    needs: "picture",
    fields: () => [line("object", "Find every", "square")],
    read: () => ({ object: byId("object").value }),
    write: ({ object }) => (byId("object").value = object ?? ""),
  },
  point: {
    needs: "picture",
    fields: () => [line("object", "Point at every", "square")],
    read: () => ({ object: byId("object").value }),
    write: ({ object }) => (byId("object").value = object ?? ""),
  },
  gaze: {
    needs: "picture",
    fields: () => [h("p", { class: "dim" }, "Click on a person’s eye in the picture.")],
    read: () => ({ spatial_refs: eye.at ? [eye.at] : undefined }),
    write: ({ spatial_refs }) => (eye.at = spatial_refs?.[0] ?? null),
  },
  transcribe: speech,
  translate: speech,
  // its form is the chat's own
  chat: { fields: () => [], read: () => ({}), write: () => {} },
};
