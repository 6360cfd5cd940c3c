/** Where the page begins: makes the parts, gives them to the panels, and opens the stream. */

import { createAccess } from "./lib/access.js";
import { createApi } from "./lib/api.js";
import * as format from "./lib/format.js";
import { createLive } from "./lib/live.js";
import { createOperations } from "./lib/operations.js";
import { keepFresh } from "./lib/refresh.js";
import { createStore } from "./lib/store.js";
import { installToggle } from "./lib/theming.js";
import { createToasts } from "./lib/toast.js";
import * as acceptance from "./panels/acceptance.js";
import * as banner from "./panels/banner.js";
import * as chat from "./panels/chat.js";
import * as decisions from "./panels/decisions.js";
import * as depth from "./panels/depth.js";
import * as glance from "./panels/glance.js";
import * as history from "./panels/history.js";
import * as logs from "./panels/logs.js";
import * as models from "./panels/models.js";
import * as queue from "./panels/queue.js";
import * as top from "./panels/top.js";
import * as vram from "./panels/vram.js";

/**
 * What every panel gets.
 * @typedef {{
 *   api: import("./lib/api.js").Api,
 *   store: import("./lib/store.js").Store,
 *   live: import("./lib/live.js").Live,
 *   format: typeof import("./lib/format.js"),
 *   access: ReturnType<typeof createAccess>,
 *   operate: ReturnType<typeof createOperations>,
 *   toasts: ReturnType<typeof createToasts>,
 * }} Context
 */

/** The panels by the id of their section; each has `mount(section, ctx)`. */
const PANELS = {
  acceptance,
  banner,
  chat,
  decisions,
  depth,
  glance,
  history,
  logs,
  models,
  queue,
  vram,
};

const element = (id) => document.getElementById(id);

const api = createApi();
const store = createStore({
  status: null,
  models: null,
  gpu: null,
  access: null,
  operation: null,
  finished: [],
  link: "connecting",
});
const live = createLive(api, store);
const toasts = createToasts(element("toasts"));
const fresh = keepFresh({ api, store, live, onProblem: toasts.problem });
const access = createAccess({
  api,
  store,
  onToken() {
    fresh.all();
    live.restart();
  },
});
const operate = createOperations({ api, live, toasts });

/** @type {Context} */
const ctx = { api, store, live, format, access, operate, toasts };

installToggle(element("theme"));
top.mount(document.querySelector("header.top"), ctx);
for (const [id, panel] of Object.entries(PANELS)) {
  const section = element(id);
  panel.mount(section, ctx);
  section.hidden = false;
}
live.start();
