/** Models and pools, and what can be done with them. */

import { absent } from "../lib/absent.js";
import { quoted } from "../lib/access.js";
import { drawn, h, parts } from "../lib/dom.js";

const RUNNING = new Set(["spawning", "loading", "probing", "ready", "draining"]);
const ACTIVE = new Set(["queued", "running"]);

/**
 * @param {HTMLElement} section
 * @param {import("../app.js").Context} ctx
 */
export function mount(section, ctx) {
  const { store } = ctx;
  const { body } = parts(section);
  const [notice, progress, list] = [h("div", {}), h("div", { "aria-live": "polite" }), h("div", {})];
  body.append(notice, progress, list);
  const drawNotice = drawn(notice);
  const drawProgress = drawn(progress);
  const drawList = drawn(list);
  /** The depth that is picked per model, "" for the chosen one. */
  const picked = new Map();

  store.subscribe(["access"], (access) => {
    drawNotice(access, () => (access && !access.changes.allowed ? refused(access.changes) : null));
  });

  store.subscribe(["status", "operation"], (status, told) => {
    // An event is newer than the status; the status knows what ran before the page was here.
    const operation = told && ACTIVE.has(told.state) ? told : (status?.operation ?? null);
    const active = operation && ACTIVE.has(operation.state) && operation.id !== ended(told);
    drawProgress(active ? operation : null, () => (active ? running(operation, ctx) : null));
  });

  store.subscribe(["status", "models", "access", "link"], (status, models, access, link) => {
    if (!status || !models) {
      drawList({ link }, () => absent(link));
      return;
    }
    const pools = poolsOf(status, models);
    const rows = models.map(({ depths, memory, ...model }) => {
      const row = depths.find((one) => one.arm.depth === model.choice?.arm.depth);
      const served = status.engines.find((one) => one.profile === model.id && one.arm)?.arm.depth;
      return { ...model, tps: row?.decode_tps ?? null, served: served ?? null };
    });
    drawList({ pools, rows, access }, () => [
      pools.length ? h("ul.things", { "aria-label": "Pools" }, pools.map((one) => pool(one, ctx))) : null,
      rows.length
        ? h("ul.things", { "aria-label": "Models" }, rows.map((one) => model(one, picked, ctx)))
        : h("p.empty", {}, "The configuration has no model."),
    ]);
  });
}

function ended(told) {
  return told && !ACTIVE.has(told.state) ? told.id : null;
}

function poolsOf(status, models) {
  const names = new Set(models.map((one) => one.id));
  return status.choices.filter((one) => !names.has(one.subject));
}

function refused({ reason, hint }) {
  return h(
    "p.notice",
    {},
    `${reason} Each button says which command does the same. `,
    h("span.muted", {}, hint ?? ""),
  );
}

function running({ id, kind, params, progress, state }, { access, api, toasts }) {
  const of = params.subject ?? params.model ?? "";
  const known = progress.total !== null && progress.total > 0;
  return h(
    "div.operation",
    {},
    h("strong", {}, `${kind} ${of}`, state === "queued" ? " (queued)" : ""),
    h("progress", {
      "aria-label": `Progress of ${kind} ${of}`,
      max: known ? progress.total : null,
      value: known ? progress.done : null,
    }),
    h("span.muted.small", {}, known ? `${progress.done} of ${progress.total}` : "", ` ${progress.note}`),
    access.button({
      label: "Cancel",
      name: `Cancel ${kind} ${of}`,
      key: "cancel",
      line: () => `mtpctl operations cancel ${id}`,
      run: () => api.del(`/operations/${id}`).catch(toasts.problem),
    }),
  );
}

function pool({ subject, arm, reason, measured }, { access, operate }) {
  return h(
    "li",
    {},
    h(
      "div.thing",
      {},
      h("p", {}, h("strong", {}, subject), h("span.tag", {}, "pool")),
      h("p.muted.small", {}, reason),
    ),
    h("div.fact", {}, `${arm.profile}@${arm.depth}`, h("span.note", {}, measured ? "measured" : "not compared")),
    h(
      "div.acts",
      {},
      access.button({
        label: "Tune",
        name: `Tune pool ${subject}`,
        key: `tune-${subject}`,
        line: () => `mtpctl tune ${quoted(subject)}`,
        run: () => operate("/tune", { subject }, `tune ${subject}`),
      }),
      access.button({
        label: "Switch",
        name: `Switch to pool ${subject}`,
        key: `switch-${subject}`,
        line: () => `mtpctl switch ${quoted(subject)}`,
        run: () => operate("/switch", { model: subject }, `switch to ${subject}`),
      }),
    ),
  );
}

function model(one, picked, ctx) {
  const { id, aliases, tags, size_bytes: size, state, choice, tps, served, kind } = one;
  const { format } = ctx;
  const runs = RUNNING.has(state);
  return h(
    "li",
    { "data-model": id },
    h(
      "div.thing",
      {},
      h(
        "p",
        {},
        h("strong", {}, id),
        h(`span.tag${state === "ready" ? ".good" : ""}`, { "data-state": state }, state),
        tags.map((tag) => h("span.tag", {}, tag)),
      ),
      h(
        "p.muted.small",
        {},
        [
          aliases.length ? `also ${aliases.join(", ")}` : "",
          kind === "opaque" ? "a program that is only started and stopped" : "",
          size === null ? "" : format.bytes(size),
          `${one.slots} ${one.slots === 1 ? "slot" : "slots"}`,
          one.context === null ? "" : `context ${one.context.toLocaleString("en")}`,
          `KV ${one.kv_type}`,
        ]
          .filter(Boolean)
          .join(" · "),
      ),
    ),
    h(
      "div.fact",
      {},
      depthOf(runs, served, choice),
      h("span.note", {}, tps === null ? "not measured" : `${format.tps(tps)} measured`),
    ),
    acts(one, runs, picked, ctx),
  );
}

function depthOf(runs, served, choice) {
  if (runs && served !== null) return `depth ${served}`;
  return choice ? `depth ${choice.arm.depth} chosen` : "";
}

function acts({ id, max_depth: most, kind }, runs, picked, { access, operate }) {
  const name = quoted(id);
  const opaque = kind === "opaque" ? "It is only started and stopped." : "";
  const pick = h(
    "select",
    { "aria-label": `Depth for ${id}`, "data-key": `depth-${id}`, onchange: () => picked.set(id, pick.value) },
    h("option", { value: "" }, "chosen depth"),
    Array.from({ length: most + 1 }, (_, depth) => h("option", { value: depth }, `depth ${depth}`)),
  );
  pick.value = picked.get(id) ?? "";
  return h(
    "div.acts",
    {},
    opaque ? null : pick,
    access.button({
      label: "Switch",
      name: `Switch to ${id}`,
      key: `switch-${id}`,
      line: () => `mtpctl switch ${name}${pick.value ? ` --depth ${pick.value}` : ""}`,
      run() {
        const depth = pick.value === "" ? {} : { depth: Number(pick.value) };
        operate("/switch", { model: id, ...depth }, `switch to ${id}`);
      },
    }),
    access.button({
      label: "Tune",
      name: `Tune ${id}`,
      key: `tune-${id}`,
      line: () => `mtpctl tune ${name}`,
      whyNot: opaque,
      run: () => operate("/tune", { subject: id }, `tune ${id}`),
    }),
    runs
      ? access.button({
          label: "Unload",
          name: `Unload ${id}`,
          key: `load-${id}`,
          line: () => `mtpctl unload ${name}`,
          run: () => operate("/unload", { model: id }, `unload ${id}`),
        })
      : access.button({
          label: "Load",
          name: `Load ${id}`,
          key: `load-${id}`,
          line: () => `mtpctl load ${name}`,
          run: () => operate("/load", { model: id }, `load ${id}`),
        }),
  );
}
