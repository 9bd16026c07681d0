// Gives the user's file an address that workers can read.

import { ApiError, call } from "./api.js";

/**
 * Return the address of a holder with `file` and `address`, or null if it has neither.
 *
 * A file is uploaded once, by `path`, whose answer has the address under `field`; without a bucket it is sent whole.
 */
export async function located(holder, path, field) {
  if (holder.address !== null || holder.file === null) return holder.address;
  const { file } = holder;
  let address;
  try {
    address = (await call("POST", path, { bytes: file, type: file.type }))[field];
  } catch (error) {
    if (error.code !== "no_bucket") throw error;
    address = await inline(file);
  }
  if (holder.file === file) holder.address = address;
  return address;
}

function inline(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result));
    reader.addEventListener("error", () => reject(new ApiError(0, "unreadable", "the file cannot be read")));
    reader.readAsDataURL(file);
  });
}
