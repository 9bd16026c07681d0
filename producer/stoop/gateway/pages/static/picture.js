// The picture of the playground: dropped, pasted, chosen or named by its address; uploaded before its first question.

import { ApiError, load } from "./api.js";
import { byId, show } from "./dom.js";
import { located } from "./upload.js";
import { wireWebcam } from "./webcam.js";

const SMALL = 512;

/** The current picture. `address` is what a job says; `name` is a file's name or an address. */
export class Picture {
  constructor(onChange) {
    this.onChange = onChange;
    this.image = byId("picture");
    this.recall(null, "");
    byId("file").addEventListener("change", (event) => event.target.files[0] && this.take(event.target.files[0]));
    byId("clear").addEventListener("click", () => this.clear());
    byId("address-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const address = byId("address").value.trim();
      if (!address) return;
      this.use(address);
      this.onChange();
    });
    document.addEventListener("paste", (event) => {
      const file = [...(event.clipboardData?.files ?? [])].find((each) => each.type.startsWith("image/"));
      if (file) this.take(file);
    });
    wireWebcam((file) => this.take(file), (message) => this._refuse(message));
  }

  clear() {
    this.recall(null, "");
    this.onChange();
  }

  /** Use a file of the user's. */
  take(file) {
    if (!file.type.startsWith("image/")) return this._refuse(`${file.name} is not a picture.`);
    this.file = file;
    this.address = null;
    this._show(URL.createObjectURL(file), file.name);
    this.onChange();
  }

  /** Use the picture at an address that workers can read; `small` is shown where the gateway cannot show it. */
  async use(address, small = null) {
    this.file = null;
    this.address = address;
    this._show(small, address.startsWith("data:") ? "" : address);
    if (!address.startsWith("s3://")) return;
    try {
      const shown = await load(`v1/images?address=${encodeURIComponent(address)}`);
      if (this.address === address) this._show(URL.createObjectURL(shown), address);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (this.address === address && !small) this._refuse(`The picture cannot be shown here: ${error.message}`);
    }
  }

  /** Show a small copy of a picture that is not at hand any more, or nothing. */
  recall(small, name) {
    this.file = null;
    this.address = null;
    this._show(small, name);
  }

  /** Return the address for a job, or null without a picture. Uploads a file first; without a bucket it is sent whole. */
  located() {
    return located(this, "v1/images", "image");
  }

  /** Return the picture as a small data address, for the history. */
  small() {
    const { naturalWidth: width, naturalHeight: height } = this.image;
    if (!this.shown || !width) return null;
    const scale = Math.min(1, SMALL / Math.max(width, height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(width * scale));
    canvas.height = Math.max(1, Math.round(height * scale));
    canvas.getContext("2d").drawImage(this.image, 0, 0, canvas.width, canvas.height);
    return canvas.toDataURL("image/jpeg", 0.8);
  }

  _show(source, name) {
    if (this.shown?.startsWith("blob:")) URL.revokeObjectURL(this.shown);
    this.shown = source;
    this.name = name;
    if (source) this.image.src = source;
    else this.image.removeAttribute("src");
    show(byId("frame"), Boolean(source));
    show(byId("empty"), !source);
    show(byId("picture-error"), false);
    byId("name").textContent = name;
    byId("file").value = "";
  }

  _refuse(message) {
    byId("picture-error").textContent = message;
    show(byId("picture-error"), true);
  }
}
