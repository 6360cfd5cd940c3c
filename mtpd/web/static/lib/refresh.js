/** What keeps the store true: read anew after events, and slowly while the page is seen. */

/** Events come in swarms; one reading answers a whole swarm. */
const SETTLE_MS = 250;
/** Two readings of the same thing are at least this far apart. */
const APART_MS = 1000;
const SLOW_MS = 5000;
const KEPT_REQUESTS = 60;

/** What is read after which events (types or their first parts). */
const READINGS = {
  status: {
    path: "/status",
    take: (body) => body,
    after: [
      "engine",
      "residency",
      "memory",
      "decision",
      "operation",
      "config",
      "device",
      "request",
    ],
  },
  models: {
    path: "/models",
    take: (body) => body.models,
    after: ["decision", "measurement", "engine.transition", "config"],
  },
  gpu: { path: "/gpu", take: (body) => body.devices, after: ["device", "engine.transition"] },
  access: { path: "/access", take: (body) => body, after: [] },
};

/**
 * @param {{api: import("./api.js").Api, store: import("./store.js").Store,
 *   live: import("./live.js").Live, onProblem: (error: Error) => void}} parts
 * @returns {{all: () => void}} reads everything anew
 */
export function keepFresh({ api, store, live, onProblem }) {
  const readers = Object.entries(READINGS).map(([name, { path, take, after }]) => {
    const read = spaced(async () => {
      try {
        store.set(name, take(await api.get(path)));
      } catch (error) {
        // What may not be read any more is not shown any more.
        if (error.needsAccess) store.set(name, null);
        const told = error.needsAccess ? name === "access" && api.hasToken() : error.status !== 0;
        // The stream says that nobody answers; a refusal is told by one of the readers.
        if (told) onProblem(error);
      }
    });
    for (const type of after) live.on(type, read);
    return { name, read };
  });
  const all = () => {
    for (const { read } of readers) read();
  };

  live.on("stream.open", all);
  live.on("stream.reset", all);
  live.on("request.finished", ({ event, at }) => {
    store.set("finished", [{ ...event, at }, ...store.get("finished")].slice(0, KEPT_REQUESTS));
  });
  live.on("operation.changed", ({ event }) => store.set("operation", event.operation));

  setInterval(() => {
    if (document.hidden || store.get("link") !== "live") return;
    for (const { name, read } of readers) if (name === "status" || name === "gpu") read();
  }, SLOW_MS);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && store.get("link") === "live") all();
  });
  return { all };
}

/**
 * Wait for quiet, keep readings apart, and never run two at once.
 * @param {() => Promise<void>} work
 * @returns {() => void}
 */
function spaced(work) {
  let timer = 0;
  let runs = false;
  let again = false;
  let last = -Infinity;
  const ask = () => {
    if (runs) again = true;
    else if (!timer) {
      timer = setTimeout(go, Math.max(SETTLE_MS, last + APART_MS - performance.now()));
    }
  };
  const go = async () => {
    timer = 0;
    runs = true;
    try {
      await work();
    } finally {
      // Also where somebody who shows it has failed: else it would never be read again.
      runs = false;
      last = performance.now();
      if (again) {
        again = false;
        ask();
      }
    }
  };
  return ask;
}
