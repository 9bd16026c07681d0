// The events of one job, each once and in order: `for await (const event of follow(url, id)) …`
//
// A channel of Redis keeps nothing for who is late or cut off; the job's log does. So: subscribe first, then read the
// log, drop what repeats, and read the log again at a gap, after a reconnect and after a silence.

import { createClient } from "redis";

const ENDINGS = new Set(["finished", "failed", "cancelled", "expired"]);
const SILENCE_MS = 2000;

/** Yields the events behind the one with the number `after`, up to the one that ends the job; waits for those to come. */
export async function* follow(url, id, after = -1) {
  const stem = `stoop:{${partition(id)}}:`;
  const reader = createClient({ url });
  const listener = reader.duplicate();
  let next = after + 1; // the number of the event that is to come
  let published = []; // what the channel has brought
  let late = true; // the log may have what the channel did not bring
  let wake = () => {};

  const look = () => { late = true; wake(); };
  // both clients connect again by themselves
  for (const client of [reader, listener]) client.on("error", error => console.error(`redis: ${error.message || error.code}`));
  listener.on("ready", look);
  const timer = setInterval(look, SILENCE_MS);

  try {
    await Promise.all([reader.connect(), listener.connect()]);
    await listener.subscribe(`${stem}events:${id}`, packed => { published.push(JSON.parse(packed)); wake(); });
    for (;;) {
      let fresh = published;
      published = [];
      // the log has all that the channel has brought, so a gap needs the log alone
      if (late || fresh.some((event, i) => event.seq > next + i)) {
        late = false;
        fresh = await missed(reader, stem, id, next).catch(() => []); // Redis is away: the timer looks again
      }
      if (fresh === null) return; // nothing comes after the last event
      for (const event of fresh) {
        if (event.seq < next) continue; // a repeat
        next = event.seq + 1;
        yield event;
        if (ENDINGS.has(event.type)) return;
      }
      if (!late && !published.length) await new Promise(resolve => { wake = resolve; });
    }
  } finally {
    clearInterval(timer);
    listener.destroy();
    reader.destroy();
  }
}

/** The events from number `next` on: from the log or, where that has expired, the last one made of the result; null behind the last one. */
async function missed(reader, stem, id, next) {
  const read = async () => {
    const entries = await reader.xRange(`${stem}log:${id}`, `${next + 1}-0`, "+");
    return entries.map(entry => JSON.parse(entry.message.e));
  };
  const logged = await read();
  if (logged.length) return logged;
  const packed = await reader.get(`${stem}result:${id}`);
  if (packed === null) return [];
  // the job may have ended between the two: only a log that is still empty has expired
  const again = await read();
  if (again.length) return again;
  const last = Number(await reader.hGet(`${stem}job:${id}`, "seq") ?? next + 1) - 1;
  return next > last ? null : [ending(JSON.parse(packed), last)];
}

function ending(result, seq) {
  const { id, status, attempt, failure } = result;
  return { type: status === "completed" ? "finished" : status, id, seq, attempt, result, failure };
}

/** A generated id ends in its partition; any other is of partition 0. */
function partition(id) {
  return /^[0-9a-f]{32}-(\d{1,5})$/.exec(id)?.[1] ?? "0";
}
