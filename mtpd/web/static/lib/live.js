/** The daemon's events: one stream for the whole page. */

import { BASE } from "./api.js";
import { follow } from "./follow.js";

/**
 * @typedef {{on: (type: string, listener: (envelope: any) => void) => () => void,
 *   start: () => void, restart: () => void}} Live
 */

/**
 * @param {import("./api.js").Api} api
 * @param {import("./store.js").Store} store its `link` says how the stream stands
 * @returns {Live} `restart` opens it anew, with the token of now; `on` takes a type or its first part, "" for all; "stream.open" is told at
 *   every (re)connection: what was known may be old then
 */
export function createLive(api, store) {
  const listeners = new Set();
  const { start, restart } = follow(api, {
    url: () => `${BASE}/events`,
    onState: (state) => store.set("link", state),
    onEvent(type, envelope) {
      for (const one of listeners) {
        if (!one.type || one.type === type || type.startsWith(`${one.type}.`)) {
          one.listener(envelope);
        }
      }
    },
  });
  return {
    on(type, listener) {
      const one = { type, listener };
      listeners.add(one);
      return () => listeners.delete(one);
    },
    start,
    restart,
  };
}
