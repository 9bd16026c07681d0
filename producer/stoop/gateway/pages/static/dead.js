// Dead letters: their causes, the letters of one cause, and redriving or purging them after a count.

import { call } from "./api.js";
import { addRows, byId, fill, h, show } from "./dom.js";

/** Ask for a yes. */
function confirmed(title, text, yes) {
  const dialog = byId("confirm");
  byId("confirm-title").textContent = title;
  byId("confirm-text").textContent = text;
  byId("confirm-yes").textContent = yes;
  return new Promise((resolve) => {
    const end = (answer) => (resolve(answer), dialog.close());
    byId("confirm-yes").onclick = () => end(true);
    byId("confirm-no").onclick = () => end(false);
    dialog.oncancel = () => resolve(false);
    dialog.showModal();
  });
}

const VERBS = {
  redrive: { title: "Redrive", text: "They go back to their lanes, their attempts counted anew." },
  purge: { title: "Purge", text: "They are deleted for ever." },
};

const letters = (count) => `${count} dead ${count === 1 ? "letter" : "letters"}`;

/** The section of dead letters. `onJob(id)` shows a job, `fail(error)` an error. */
export class Dead {
  constructor({ onJob, fail }) {
    this.onJob = onJob;
    this.fail = fail;
    this.operator = false;
    this.filter = null;
    this.before = null;
    byId("search-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.search(byId("search").value.trim());
    });
    byId("dead-refresh").addEventListener("click", () => this.load());
    byId("redrive-all").addEventListener("click", () => this.act("redrive", { all: true }));
    byId("purge-all").addEventListener("click", () => this.act("purge", { all: true }));
    byId("redrive-found").addEventListener("click", () => this.act("redrive", this.filter));
    byId("purge-found").addEventListener("click", () => this.act("purge", this.filter));
    byId("redrive-chosen").addEventListener("click", () => this.act("redrive", { letters: this.chosen() }));
    byId("purge-chosen").addEventListener("click", () => this.act("purge", { letters: this.chosen() }));
    byId("more").addEventListener("click", () => this.list());
    byId("choose-all").addEventListener("change", (event) => {
      for (const box of byId("letters").querySelectorAll("input")) box.checked = event.target.checked;
    });
  }

  /** Draw the causes, which may be asked for already. */
  async load(asked = call("GET", "v1/dead/causes")) {
    try {
      const answered = await asked;
      if (answered instanceof Error) throw answered;
      const { causes, seen, total } = answered;
      const state = total === 0 ? "There are none." : `${letters(total)}${seen < total ? `; grouped are the newest ${seen}` : ""}.`;
      byId("dead-state").textContent = state;
      fill(byId("causes"), causes.map((cause) => this._cause(cause)));
      for (const id of ["redrive-all", "purge-all"]) show(byId(id), this.operator && total > 0);
      if (this.filter) await this.open(this.filter);
    } catch (error) {
      this.fail(error);
    }
  }

  _cause(cause) {
    const chosen = { code: cause.code, message: cause.message };
    const button = (label, act, kind) =>
      h("button", { type: "button", class: kind, "aria-label": `${label}: ${cause.code}, ${cause.message}`, onclick: act }, label);
    const actions = this.operator
      ? [
          button("Show", () => this.open(chosen), "quiet"),
          button("Redrive", () => this.act("redrive", chosen)),
          button("Purge", () => this.act("purge", chosen), "danger"),
        ]
      : [];
    return h("li", {}, h("b", { class: "count" }, cause.count), h("span", {}, h("b", {}, cause.code), " ", cause.message), actions);
  }

  /** List the letters that have all of these words; without any, none. */
  async search(words) {
    if (words) return this.open({ search: words });
    this.filter = null;
    show(byId("letters-card"), false);
  }

  /** List the letters of a cause or a search. */
  async open(filter) {
    this.filter = filter;
    this.before = null;
    const { code, search } = filter;
    byId("letters-title").textContent = search ? `Letters with “${search}”` : `Letters: ${code}`;
    fill(byId("letters"));
    byId("choose-all").checked = false;
    await this.list();
  }

  async list() {
    const asked = new URLSearchParams({ ...this.filter, ...(this.before ? { before: this.before } : {}) });
    try {
      const page = await call("GET", `v1/dead?${asked}`);
      this.before = page.before;
      addRows(byId("letters"), page.letters.map((letter) => this._row(letter)));
      show(byId("more"), page.before !== null);
      const any = byId("letters").hasChildNodes();
      const { search } = this.filter;
      if (!any && search) byId("letters-title").textContent = `No letter has “${search}”`;
      for (const id of ["redrive-found", "purge-found"]) show(byId(id), any && search !== undefined);
      for (const id of ["redrive-chosen", "purge-chosen"]) show(byId(id), any);
      show(byId("letters-card"), any || search !== undefined);
    } catch (error) {
      this.fail(error);
    }
  }

  _row(letter) {
    const box = h("input", { type: "checkbox", value: letter.letter, "aria-label": `Choose the letter of job ${letter.job_id}` });
    const job = h("button", { type: "button", class: "link", onclick: () => this.onJob(letter.job_id) }, letter.job_id);
    const when = new Date(letter.at).toLocaleString();
    const cell = (kind) => (content) => h("td", { class: kind }, content);
    return h("tr", {}, [box, job, letter.lane, letter.tenant].map(cell()), cell("number")(letter.attempt), cell()(when), cell("long")(letter.message));
  }

  chosen() {
    return [...byId("letters").querySelectorAll("input:checked")].map((box) => box.value);
  }

  /** Count the letters, ask, act, and say what became of each. */
  async act(verb, choice) {
    if (choice.letters?.length === 0) return void (byId("dead-done").textContent = "Choose some letters first.");
    try {
      const { matched } = await call("POST", `v1/dead/${verb}`, { body: { ...choice, dry_run: true } });
      const { title, text } = VERBS[verb];
      if (!(await confirmed(`${title} ${letters(matched)}?`, text, title))) return;
      const outcome = await call("POST", `v1/dead/${verb}`, { body: choice });
      await this.load();
      const done = verb === "redrive" ? `${outcome.redriven} sent back to their lanes` : `${outcome.purged} deleted`;
      const lives = outcome.lives ? `; ${outcome.lives} left, because their jobs run again or completed` : "";
      const gone = outcome.gone ? `; ${outcome.gone} were gone already` : "";
      byId("dead-done").textContent = `${done}${lives}${gone}.`;
    } catch (error) {
      this.fail(error);
    }
  }
}
