// Prints the words of one job as they come: node words.mjs JOB [AFTER]

import { follow } from "./follow.mjs";

const [id, after = "-1"] = process.argv.slice(2);
if (!id) {
  console.error("usage: node words.mjs JOB [AFTER]");
  process.exit(2);
}

const url = process.env.STOOP_REDIS_URL ?? "redis://localhost:6379/0";
for await (const event of follow(url, id, Number(after))) {
  if (event.type === "delta") process.stdout.write(event.text);
  // a worker was lost, and what it said counts no more
  else if (event.type === "restarted") process.stdout.write("\n[begun anew]\n");
  else if (event.type === "finished") process.stdout.write("\n");
  else if (event.failure) console.error(`${event.failure.code}: ${event.failure.message}`);
  if (["failed", "cancelled", "expired"].includes(event.type)) process.exitCode = 1;
}
