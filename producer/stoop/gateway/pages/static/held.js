// Jobs that wait in no lane: delayed ones, and those in the quarantine.

import { call } from "./api.js";
import { byId, fill, fillRows, h, show } from "./dom.js";
import { lasting } from "./queue.js";

/** The section of held jobs; `onJob(id)` shows a job, `fail(error)` an error. */
export class Held {
  constructor({ onJob, fail }) {
    this.onJob = onJob;
    this.fail = fail;
    this.operator = false;
    this.counts = "";
  }

  /** Take in a look at the queue; the jobs are only asked for when their counts have changed. */
  take(view) {
    const counts = { delayed: view.delayed, ...view.quarantined };
    const known = Object.entries(counts).filter(([, count]) => count > 0);
    show(byId("held-card"), known.length > 0);
    byId("held-counts").textContent = known.map(([place, count]) => `${name(place)}: ${count}`).join(" · ");
    if (JSON.stringify(counts) === this.counts) return;
    this.counts = JSON.stringify(counts);
    if (this.operator && known.length) this._load(view.at);
    else fill(byId("held"));
  }

  async _load(now) {
    try {
      const { held } = await call("GET", "v1/queue/held");
      fillRows(byId("held"), held.map((job) => this._row(job, now)));
    } catch (error) {
      this.fail(error);
    }
  }

  _row(job, now) {
    const link = h("button", { type: "button", class: "link", onclick: () => this.onJob(job.job_id) }, job.job_id);
    const due = job.due === null ? "when a worker is free for it" : job.due <= now ? "now" : `in ${lasting((job.due - now) / 1000)}`;
    return h("tr", {}, [link, name(job.place), due].map((cell) => h("td", {}, cell)));
  }
}

const name = (place) => (place === "delayed" ? "delayed" : `quarantine, ${place}`);
