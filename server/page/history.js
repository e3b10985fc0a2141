// Results that this browser keeps, and sends to no one.

const MOST = 24;

function open() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open("tileforge", 1);
    request.onupgradeneeded = () => request.result.createObjectStore("results", { autoIncrement: true });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

async function store(mode) {
  return (await open()).transaction("results", mode).objectStore("results");
}

/** Keeps a result; the oldest of too many goes. */
export async function keep(entry) {
  const results = await store("readwrite");
  await done(results.add(entry));
  const keys = await done(results.getAllKeys());
  for (const key of keys.slice(0, Math.max(0, keys.length - MOST))) await done(results.delete(key));
}

/** The results, the newest first. */
export async function all() {
  return (await done((await store("readonly")).getAll())).reverse();
}

export async function forget() {
  await done((await store("readwrite")).clear());
}
