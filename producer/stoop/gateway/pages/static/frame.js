// The frame of both pages: the dialog that asks for an API key.

import { key } from "./api.js";
import { byId } from "./dom.js";

/** Wire the dialog; `onKey` is called when a key was given. */
export function wireKey(onKey) {
  const dialog = byId("key-dialog");
  const field = byId("key");
  const open = () => {
    if (dialog.open) return;
    field.value = key.get();
    dialog.showModal();
  };
  byId("key-button").addEventListener("click", open);
  document.addEventListener("key-wanted", open);
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    key.set(field.value.trim());
    dialog.close();
    onKey();
  });
  byId("key-cancel").addEventListener("click", () => dialog.close());
}
