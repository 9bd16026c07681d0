// Lanes, workers and tenants, drawn anew with every look at the queue.

import { call } from "./api.js";
import { byId, fill, h, show } from "./dom.js";
import { spark } from "./spark.js";

const KEPT = 60;
const ENDINGS = ["completed", "failed", "cancelled", "expired"];
const looks = [];

const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

/** Write a time that has passed. */
export function lasting(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const [unit, length] = [["d", 86400], ["h", 3600], ["min", 60]].find(([, each]) => seconds >= 2 * each) ?? ["s", 1];
  return `${(seconds / length).toFixed(unit === "s" && seconds < 10 ? 1 : 0)} ${unit}`;
}

function measured(view) {
  return {
    at: view.at,
    waiting: sum(view.lanes.map((lane) => lane.waiting)),
    running: sum(view.lanes.map((lane) => lane.in_flight)),
    quarantined: sum(Object.values(view.quarantined)),
    ended: sum(ENDINGS.map((state) => view.totals[state] ?? 0)),
    delayed: view.delayed,
    dead: view.dead,
    workers: view.workers.length,
  };
}

/** Draw a look at the queue; `operator` says whether its lanes may be paused, `fail` shows an error. */
export function drawQueue(view, operator, fail) {
  looks.push(measured(view));
  if (looks.length > KEPT) looks.shift();
  drawTiles();
  // the rows are new each time, so the focus is given to the button that has taken its button's place
  const focused = byId("lanes").contains(document.activeElement) ? document.activeElement.dataset.lane : undefined;
  fill(byId("lanes"), view.lanes.map((lane) => laneRow(lane, operator, fail)));
  [...byId("lanes").querySelectorAll("button")].find((button) => button.dataset.lane === focused)?.focus();
  fill(byId("workers"), view.workers.map((worker) => workerRow(worker, view.at)));
  show(byId("no-workers"), view.workers.length === 0);
  show(byId("tenants-card"), view.tenants.length > 0);
  fill(byId("tenants"), view.tenants.map((each) => row([each.tenant, each.lane, number(each.jobs)])));
}

function rates() {
  const before = looks.slice(0, -1);
  return before.map((look, i) => {
    const seconds = (looks[i + 1].at - look.at) / 1000;
    return seconds > 0 ? Math.max(0, (looks[i + 1].ended - look.ended) / seconds) : 0;
  });
}

function drawTiles() {
  const now = looks.at(-1);
  const speeds = rates();
  const recent = speeds.slice(-5);
  const rate = recent.length ? sum(recent) / recent.length : 0;
  const of = (name) => looks.map((look) => look[name]);
  fill(
    byId("tiles"),
    tile("Waiting", now.waiting, of("waiting")),
    tile("In flight", now.running, of("running")),
    tile("Ended a second", rate.toFixed(rate < 10 ? 1 : 0), speeds),
    tile("Delayed", now.delayed, of("delayed")),
    tile("Quarantined", now.quarantined, of("quarantined")),
    tile("Dead", now.dead, of("dead")),
    tile("Workers", now.workers, of("workers")),
  );
}

const tile = (name, value, values) => h("div", {}, h("dt", {}, name), h("dd", {}, value, spark(values)));

const number = (value) => h("td", { class: "number" }, value);

function row(cells) {
  return h("tr", {}, cells.map((cell) => (cell instanceof HTMLTableCellElement ? cell : h("td", {}, cell))));
}

function laneRow(lane, operator, fail) {
  const state = lane.paused ? h("span", { class: "warn" }, "paused") : lane.served ? "open" : h("span", { class: "warn" }, "no worker");
  const verb = lane.paused ? "resume" : "pause";
  const act = async () => {
    await call("POST", `v1/queue/lanes/${encodeURIComponent(lane.lane)}/${verb}`).catch(fail);
  };
  const label = `${lane.paused ? "Resume" : "Pause"} ${lane.lane}`;
  const button = operator ? h("button", { type: "button", "aria-label": label, "data-lane": lane.lane, onclick: act }, lane.paused ? "Resume" : "Pause") : "";
  return row([lane.lane, number(lane.waiting), number(lane.in_flight), number(lasting(lane.oldest_seconds)), state, button]);
}

function workerRow(worker, now) {
  const model = [worker.name, worker.model].filter(Boolean).join(": ") || "?";
  return row([
    worker.worker,
    h("td", { class: "long" }, model),
    worker.host ? `${worker.host} (${worker.pid ?? "?"})` : "?",
    h("td", { class: "long" }, (worker.lanes ?? []).join(", ")),
    number(worker.in_flight ?? "?"),
    number(worker.permits ?? "?"),
    number(worker.started_at ? lasting((now - worker.started_at) / 1000) : "?"),
    worker.version ?? "?",
  ]);
}
