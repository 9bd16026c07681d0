// Lanes, workers and tenants, drawn anew with every look at the queue.

import { call } from "./api.js";
import { byId, fill, fillRows, h, show } from "./dom.js";
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
    lanes: Object.fromEntries(view.lanes.map((lane) => [lane.lane, lane.ended])),
    speeds: Object.fromEntries(view.workers.map((worker) => [worker.worker, worker.generated_tokens_per_second ?? 0])),
  };
}

/** Draw a look at the queue; `operator` says whether its lanes may be paused, `fail` shows an error. */
export function drawQueue(view, operator, fail) {
  looks.push(measured(view));
  if (looks.length > KEPT) looks.shift();
  drawTiles();
  // the rows are new each time, so the focus is given to the button that has taken its button's place
  const focused = byId("lanes").contains(document.activeElement) ? document.activeElement.dataset.lane : undefined;
  fillRows(byId("lanes"), view.lanes.map((lane) => laneRow(lane, operator, fail)));
  [...byId("lanes").querySelectorAll("button")].find((button) => button.dataset.lane === focused)?.focus();
  fillRows(byId("workers"), view.workers.map((worker) => workerRow(worker, view.at)));
  show(byId("no-workers"), view.workers.length === 0);
  show(byId("tenants-card"), view.tenants.length > 0);
  fillRows(byId("tenants"), view.tenants.map((each) => row([each.tenant, each.lane, number(each.jobs)])));
}

/** Return how much `count` grew a second, between one look and the next. */
function rates(count) {
  return looks.slice(0, -1).map((look, i) => {
    const seconds = (looks[i + 1].at - look.at) / 1000;
    const grown = count(looks[i + 1]) - count(look);
    return seconds > 0 && grown > 0 ? grown / seconds : 0;
  });
}

/** Return the rate over the last seconds. */
function recent(speeds) {
  const last = speeds.slice(-5);
  return last.length ? sum(last) / last.length : 0;
}

const short = (rate) => rate.toFixed(rate > 0 && rate < 10 ? 1 : 0);

function drawTiles() {
  const now = looks.at(-1);
  const speeds = rates((look) => look.ended);
  const of = (name) => looks.map((look) => look[name]);
  fill(
    byId("tiles"),
    tile("Waiting", now.waiting, of("waiting")),
    tile("In flight", now.running, of("running")),
    tile("Ended a second", short(recent(speeds)), speeds),
    tile("Tokens a second", short(sum(Object.values(now.speeds))), looks.map((look) => sum(Object.values(look.speeds)))),
    tile("Delayed", now.delayed, of("delayed")),
    tile("Quarantined", now.quarantined, of("quarantined")),
    tile("Dead", now.dead, of("dead")),
    tile("Workers", now.workers, of("workers")),
  );
}

const tile = (name, value, values) => h("div", {}, h("dt", {}, name), h("dd", {}, value, spark(values)));

const chart = (values) => h("td", { class: "chart" }, spark(values));

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
  const speeds = rates((look) => look.lanes[lane.lane] ?? lane.ended);
  const counts = [lane.waiting, lane.in_flight, lasting(lane.oldest_seconds), short(recent(speeds))];
  return row([lane.lane, ...counts.map(number), chart(speeds), state, button]);
}

function workerRow(worker, now) {
  const model = [worker.name, worker.model].filter(Boolean).join(": ") || "?";
  const process = [worker.host, worker.pid && `process ${worker.pid}`, worker.version].filter(Boolean).join(", ");
  return row([
    h("td", {}, worker.worker, h("div", { class: "dim" }, process)),
    h("td", { class: "long" }, h("div", {}, model, h("div", { class: "dim" }, worker.device ?? ""))),
    h("td", { class: "long" }, (worker.lanes ?? []).join(", ")),
    number(`${worker.in_flight ?? "?"} of ${worker.permits ?? "?"}`),
    number(short(worker.generated_tokens_per_second ?? 0)),
    chart(looks.map((look) => look.speeds[worker.worker] ?? 0)),
    number(short(worker.prompt_tokens_per_second ?? 0)),
    number(worker.started_at ? lasting((now - worker.started_at) / 1000) : "?"),
  ]);
}
