// The recording of the playground: dropped, chosen or named by its address; uploaded before its first transcript.

import { byId, show } from "./dom.js";
import { located } from "./upload.js";

const isRecording = (file) => /^(audio|video)\//.test(file.type);

/** The current recording. `address` is what a job says; `name` is a file's name or an address. */
export class Recording {
  constructor(onChange) {
    this.onChange = onChange;
    this.player = byId("player");
    this.recall("");
    byId("sound-file").addEventListener("change", (event) => event.target.files[0] && this.take(event.target.files[0]));
    byId("sound-clear").addEventListener("click", () => (this.recall(""), this.onChange()));
    byId("sound-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const address = byId("sound-address").value.trim();
      if (address) this.use(address);
      if (address) this.onChange();
    });
  }

  /** Use a file of the user's. */
  take(file) {
    if (!isRecording(file)) return this._refuse(`${file.name} is neither a sound nor a video.`);
    this._show(URL.createObjectURL(file), file.name);
    this.file = file;
    this.onChange();
  }

  /** Use the recording at an address that workers can read. */
  use(address) {
    this._show(null, address);
    this.address = address;
  }

  /** Show the name of a recording that is not at hand any more. */
  recall(name) {
    this._show(null, name);
  }

  /** Return the address for a job, or null without a recording. Uploads a file first; without a bucket it is sent whole. */
  located() {
    return located(this, "v1/recordings", "audio");
  }

  /** Play from a time (s). */
  play(seconds) {
    if (!this.player.src) return;
    this.player.currentTime = seconds;
    this.player.play().catch(() => this._refuse("This browser cannot play the recording; workers may read it all the same."));
  }

  _show(source, name) {
    if (this.player.src) URL.revokeObjectURL(this.player.src);
    if (source) this.player.src = source;
    else this.player.removeAttribute("src");
    this.file = null;
    this.address = null;
    this.name = name;
    show(this.player, Boolean(source));
    show(byId("sound-empty"), !name);
    show(byId("sound-error"), false);
    byId("sound-name").textContent = name;
    byId("sound-file").value = "";
  }

  _refuse(message) {
    byId("sound-error").textContent = message;
    show(byId("sound-error"), true);
  }
}

/** Wire dropping a file anywhere; `onFile(file, recorded)` gets it, and whether it is a recording. */
export function wireDrop(onFile) {
  for (const type of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(type, (event) => {
      event.preventDefault();
      for (const stage of document.querySelectorAll(".stage")) stage.classList.toggle("over", type === "dragover");
    });
  }
  document.addEventListener("drop", (event) => {
    const file = event.dataTransfer?.files[0];
    if (file) onFile(file, isRecording(file));
  });
}
