// What the page asks of the server: engines, and work as jobs.

const KEY = "tileforge-key";

/** An error that the server gave. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function setKey(key) {
  sessionStorage.setItem(KEY, key);
}

function headers(more = {}) {
  const key = sessionStorage.getItem(KEY);
  return key ? { ...more, Authorization: `Bearer ${key}` } : more;
}

async function ask(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: headers(options.headers) });
  if (!answer.ok) {
    const content = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, content.error?.message ?? content.error ?? answer.statusText);
  }
  return answer;
}

export async function engines() {
  const answer = await ask("/v1/models");
  return (await answer.json()).data;
}

/** The events of an answer, one after the other. EventSource cannot show a key. */
async function* eventsOf(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    const events = rest.split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const line = (name) => event.split("\n").find((one) => one.startsWith(`${name}: `))?.slice(name.length + 2);
      if (line("event")) yield { name: line("event"), data: JSON.parse(line("data")) };
    }
  }
}

/**
 * Does a job. `watch` is called with each event. Resolves to the result as a Blob; `signal` ends the job.
 */
export async function work(kind, query, body, more, watch, signal) {
  const made = await ask(`/v1/jobs/${kind}${query}`, { method: "POST", body, headers: more, signal });
  const job = await made.json();
  const place = `/v1/jobs/${job.id}`;
  // The page may go on when the job cannot be ended: it ends by itself.
  const end = () => ask(place, { method: "DELETE" }).catch(() => undefined);
  signal.addEventListener("abort", end);
  try {
    for await (const event of eventsOf(await ask(`${place}/events`, { signal }))) {
      watch(event.name, event.data);
      if (event.name === "failed") throw new Refused(event.data.error_status, event.data.error);
    }
    const result = await (await ask(`${place}/result`, { signal })).blob();
    await end();
    return result;
  } finally {
    signal.removeEventListener("abort", end);
  }
}

/** The picture of an event or an answer, as a Blob. */
export function pictureOf(coded) {
  const bytes = Uint8Array.from(atob(coded), (letter) => letter.charCodeAt(0));
  return new Blob([bytes], { type: "image/png" });
}
