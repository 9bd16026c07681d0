// Calls the gateway. The addresses are relative, so the pages also work behind a proxy's path prefix.

const KEY = "stoop.key";
const WAITS = [250, 500, 1000, 2000, 5000];

/** An answer that is an error: its HTTP status, code and message. */
export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** The API key, kept until the tab is closed. */
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

function headersOf(more = {}) {
  return key.get() ? { ...more, Authorization: `Bearer ${key.get()}` } : more;
}

async function refused(response) {
  const told = await response.json().catch(() => ({}));
  const error = told.error ?? {};
  if (response.status === 401) document.dispatchEvent(new CustomEvent("key-wanted"));
  return new ApiError(response.status, error.code ?? "unknown", error.message ?? `the gateway answered ${response.status}`);
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "the gateway cannot be reached");
  }
  if (!response.ok) throw await refused(response);
  return response;
}

/** Call a route, and return its JSON. `body` is sent as JSON, `bytes` as they are. */
export async function call(method, path, { body, bytes, type } = {}) {
  const headers = body === undefined ? (type ? { "Content-Type": type } : {}) : { "Content-Type": "application/json" };
  const sent = body === undefined ? bytes : JSON.stringify(body);
  return (await ask(path, { method, headers: headersOf(headers), body: sent })).json();
}

/** Load bytes, such as those of a picture. */
export async function load(path) {
  return (await ask(path, { headers: headersOf() })).blob();
}

/**
 * Follow a stream of events to its end, through lost connections: it goes on behind the last event that was seen.
 *
 * `onEvent(data)` returns true for the last event. `onLost(lost)` says whether the connection is lost just now. Returns
 * when the stream has ended or `signal` was raised; throws an ApiError for a refusal that trying again does not change.
 */
export async function follow(path, { signal, onEvent, onLost = () => {} }) {
  let last = null;
  let tries = 0;
  while (!signal.aborted) {
    try {
      const response = await ask(path, { headers: headersOf(last === null ? {} : { "Last-Event-ID": last }), signal });
      if (response.status === 204) return;
      onLost(false);
      for await (const event of eventsOf(response.body)) {
        tries = 0;
        if (event.id !== undefined) last = event.id;
        if (event.data !== undefined && onEvent(JSON.parse(event.data))) return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429) throw error;
    }
    onLost(true);
    await pause(WAITS[Math.min(tries++, WAITS.length - 1)], signal);
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = {};
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split(/\r?\n/);
      rest = lines.pop();
      for (const line of lines) {
        if (line === "") {
          if (event.data !== undefined) yield event;
          event = {};
          continue;
        }
        const colon = line.indexOf(":");
        const text = line.slice(colon + 1).replace(/^ /, "");
        if (colon > 0) event[line.slice(0, colon)] = text;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
