// What the programs in Node.js share: where the gateways are, and a report of each check that has passed.
import { readFileSync } from "node:fs";

const { STOOP_UP, STOOP_STREAMING, STOOP_TEXTS, STOOP_SPEECH, STOOP_SHAPES, STOOP_PICTURE, STOOP_RECORDING, STOOP_GATE } =
  process.env;

export const UP = STOOP_UP;
export const STREAMING = STOOP_STREAMING;
export const TEXTS = STOOP_TEXTS;
export const SPEECH = STOOP_SPEECH;
export const RECORDING = STOOP_RECORDING;
export const SPOKEN = "Band 11. Band 54.";
export const SHAPES = STOOP_SHAPES;
export const MODEL = "demo";
export const COUNT = "How many shapes are there?";
export const PICTURE = readFileSync(STOOP_PICTURE);
export const PICTURE_URL = `data:image/png;base64,${PICTURE.toString("base64")}`;
export const WORDS = Array.from({ length: 12 }, (_, i) => `word-${i}`).join(" ");
export const UNENDING = `tell 4 until ${STOOP_GATE}`;

export async function cancelJob(id) {
  await fetch(`${STREAMING}/v1/jobs/${id.replace("chatcmpl-", "")}`, { method: "DELETE" });
}

export async function run(...checks) {
  for (const check of checks) {
    const began = performance.now();
    await check();
    console.log(`  ${check.name.padEnd(12)} ${((performance.now() - began) / 1000).toFixed(1).padStart(5)} s`);
  }
}
