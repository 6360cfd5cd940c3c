/** The daemon's events: one stream, opened again whenever it ends, from where it ended. */

import { BASE } from "./api.js";
import { eventsOf } from "./sse.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;
/** Without a token that counts; giving one asks again at once. */
const FORBIDDEN_WAIT_MS = 60_000;
/** The daemon sends a comment every 15 s; after this long without one it is gone. */
const SILENCE_MS = 40_000;

/**
 * @typedef {{on: (type: string, listener: (envelope: any) => void) => () => void,
 *   start: () => void, retry: () => void}} Live
 */

/**
 * @param {import("./api.js").Api} api
 * @param {import("./store.js").Store} store its `link` says how the stream stands
 * @returns {Live} `on` takes a type or its first part, "" for all; "stream.open" is told at
 *   every (re)connection: what was known may be old then
 */
export function createLive(api, store) {
  const listeners = new Set();
  let last = null;
  let failures = 0;
  let wake = () => {};

  function tell(type, envelope) {
    for (const one of listeners) {
      if (!one.type || one.type === type || type.startsWith(`${one.type}.`)) one.listener(envelope);
    }
  }

  async function once() {
    const aborted = new AbortController();
    let silence = setTimeout(() => aborted.abort(), SILENCE_MS);
    try {
      const response = await api.open(`${BASE}/events`, {
        headers: last ? { "Last-Event-ID": last } : {},
        signal: aborted.signal,
      });
      failures = 0;
      store.set("link", "live");
      for await (const { event, data, id } of eventsOf(response)) {
        clearTimeout(silence);
        silence = setTimeout(() => aborted.abort(), SILENCE_MS);
        if (id) last = id;
        if (data) tell(event, JSON.parse(data));
      }
    } finally {
      clearTimeout(silence);
    }
  }

  async function run() {
    for (;;) {
      let state = "lost";
      try {
        await once();
      } catch (error) {
        if (error.needsAccess) state = "forbidden";
        else if (error.slug === "invalid-event-id") last = null;
      }
      store.set("link", state);
      failures += 1;
      await pause(state === "forbidden" ? FORBIDDEN_WAIT_MS : wait(failures));
    }
  }

  function pause(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  addEventListener("online", () => wake());
  return {
    on(type, listener) {
      const one = { type, listener };
      listeners.add(one);
      return () => listeners.delete(one);
    },
    start: run,
    retry: () => wake(),
  };
}

/** Twice as long each time, and never the same for all pages of one daemon. */
function wait(failures) {
  const longest = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(failures - 1, 10));
  return longest * (0.5 + Math.random() / 2);
}
