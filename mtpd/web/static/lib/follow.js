/** One stream of server-sent events, opened again whenever it ends, from where it ended. */

import { eventsOf } from "./sse.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;
/** Without a token that counts; giving one asks again at once. */
const FORBIDDEN_WAIT_MS = 60_000;
/** The daemon sends a comment every 15 s; after this long without one it is gone. */
const SILENCE_MS = 40_000;

/**
 * @param {import("./api.js").Api} api
 * @param {{url: () => string, onEvent: (type: string, data: any) => void,
 *   onState: (state: "live" | "lost" | "forbidden") => void}} what `url` is asked for at every
 *   opening
 * @returns {{start: () => void, retry: () => void, restart: () => void}} `retry` ends a pause;
 *   `restart` ends the stream and begins one without a past
 */
export function follow(api, { url, onEvent, onState }) {
  let last = null;
  let failures = 0;
  let fresh = false;
  let wake = () => {};
  let hangUp = () => {};

  async function once() {
    const aborted = new AbortController();
    hangUp = () => aborted.abort();
    let silence = setTimeout(hangUp, SILENCE_MS);
    try {
      const response = await api.open(url(), {
        headers: last ? { "Last-Event-ID": last } : {},
        signal: aborted.signal,
      });
      failures = 0;
      onState("live");
      for await (const { event, data, id } of eventsOf(response)) {
        clearTimeout(silence);
        silence = setTimeout(hangUp, SILENCE_MS);
        if (fresh) return;
        if (id) last = id;
        if (data) onEvent(event, JSON.parse(data));
      }
    } finally {
      clearTimeout(silence);
    }
  }

  async function run() {
    for (;;) {
      if (fresh) {
        fresh = false;
        last = null;
      }
      let state = "lost";
      try {
        await once();
      } catch (error) {
        if (error.needsAccess) state = "forbidden";
        else if (error.slug === "invalid-event-id") last = null;
      }
      if (fresh) continue;
      onState(state);
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
    start: run,
    retry: () => wake(),
    restart() {
      fresh = true;
      hangUp();
      wake();
    },
  };
}

/** Twice as long each time, and never the same for all pages of one daemon. */
function wait(failures) {
  const longest = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(failures - 1, 10));
  return longest * (0.5 + Math.random() / 2);
}
