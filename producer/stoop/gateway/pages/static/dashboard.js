// The dashboard: the queue as it changes, dead letters, and one job.

import { ApiError, call, follow } from "./api.js";
import { Dead } from "./dead.js";
import { byId, show } from "./dom.js";
import { wireKey } from "./frame.js";
import { Held } from "./held.js";
import { showJob } from "./job.js";
import { drawQueue } from "./queue.js";

let operator = false;
let watching = null;
let dead = null;
let held = null;

function fail(error) {
  byId("error").textContent = error?.message ?? "";
  show(byId("error"), Boolean(error));
}

function openJob(id) {
  window.history.replaceState(null, "", `#job=${encodeURIComponent(id)}`);
  showJob(id).then(() => byId("job-title").scrollIntoView());
}

function take(view) {
  if (view.error) {
    byId("live").textContent = view.error.message;
    return;
  }
  byId("live").textContent = "Live";
  const known = dead.count;
  dead.count = view.dead;
  if (known !== undefined && known !== view.dead) dead.load();
  held.take(view);
  drawQueue(view, operator, fail);
}

async function start() {
  watching?.abort();
  watching = new AbortController();
  fail(null);
  try {
    const causes = call("GET", "v1/dead/causes").catch((error) => error);
    const view = await call("GET", "v1/queue");
    operator = view.operator;
    dead.operator = held.operator = operator;
    show(byId("readonly"), !operator);
    show(byId("job-form"), operator);
    show(byId("search-form"), operator);
    take(view);
    dead.load(causes);
    const linked = /^#job=(.{1,300})$/.exec(location.hash)?.[1];
    if (operator && linked) showJob(decoded(linked));
    await follow("v1/queue/events", {
      signal: watching.signal,
      onEvent: (each) => void take(each),
      onLost: (lost) => lost && (byId("live").textContent = "The connection is lost: trying again"),
    });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    byId("live").textContent = "";
    fail(error);
  }
}

function decoded(linked) {
  try {
    return decodeURIComponent(linked);
  } catch {
    return linked; // a link with a lone % in it
  }
}

dead = new Dead({ onJob: openJob, fail });
held = new Held({ onJob: openJob, fail });
byId("job-form").addEventListener("submit", (event) => {
  event.preventDefault();
  // also as OpenAI's clients show it
  const id = byId("job-id").value.trim().replace(/^chatcmpl-/, "");
  if (id) openJob(id);
});
wireKey(start);
start();
