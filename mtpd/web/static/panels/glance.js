/** Model, depth, speed; why this depth, and what mtpd would do next. */

import { absent } from "../lib/absent.js";
import { drawn, h, parts } from "../lib/dom.js";
import { facts, foremost } from "../lib/show.js";

const MODES = {
  off: "Nothing is decided by itself: [tuning] mode is off.",
  observe: "It is only said, not done: [tuning] mode is observe.",
  idle: "It is done while nobody asks: [tuning] mode is idle.",
};

const MEASURES = new Set(["tune", "sweep", "probe"]);

/**
 * @param {HTMLElement} section
 * @param {import("../app.js").Context} ctx
 */
export function mount(section, { store, format }) {
  const { body } = parts(section);
  const draw = drawn(body);
  store.subscribe(["status", "models", "gpu", "finished", "link"], (status, models, gpu, finished, link) => {
    if (!status) {
      draw({ link }, () => absent(link));
      return;
    }
    const engine = foremost(status);
    const last = finished.find((one) => one.decode_tps !== null);
    const shown = {
      arm: engine?.arm ?? null,
      state: engine?.state,
      choice: status.choices.find((one) => one.subject === engine?.profile) ?? null,
      pools: pools(status, models),
      row: rowOf(models, engine?.arm),
      last: last && engine && last.profile === engine.profile ? last : null,
      queue: status.queue,
      power: power(gpu, engine),
      next: status.live.find((one) => one.profile === engine?.profile)?.next ?? null,
      mode: status.mode,
      spent: status.spent,
      measuring: measuring(status.operation),
    };
    draw(shown, () => (engine ? glance(shown, format) : resting(shown)));
  });
}

function glance(shown, format) {
  const { arm, state, choice, row, last, queue, power: draws } = shown;
  return [
    facts(
      ["Model", [h("span.big", {}, arm.profile), note(state === "ready" ? standsFor(shown) : state)]],
      [
        "Depth",
        [h("span.big", { id: "served-depth" }, String(arm.depth)), note(drafter(arm, choice))],
      ],
      ["Decode speed", speed(last, row, format)],
      [
        "Requests",
        [
          h("span.big", {}, String(queue.in_flight)),
          note(`running, ${queue.waiting} of at most ${queue.limit} waiting`),
        ],
      ],
      ["Power", draws ? watts(draws, format) : format.unknown("no device is known")],
    ),
    h(
      "dl.sentences",
      {},
      h("dt", {}, "Why"),
      h("dd", { id: "why" }, shown.measuring ?? why(arm, choice)),
      shown.spent ? [h("dt", {}, "Cost"), h("dd", { id: "cost" }, cost(shown.spent, format))] : null,
      h("dt", {}, "Next"),
      h("dd", { id: "next" }, next(shown)),
    ),
  ];
}

function resting({ pools: found, queue }) {
  return [
    h("p.empty", {}, "Nothing is loaded."),
    found.length ? h("p.muted", {}, `Asked for by pool, this would start: ${found.join(", ")}.`) : null,
    queue.waiting ? h("p", {}, `${queue.waiting} requests wait.`) : null,
  ];
}

/** The pools that stand for the model now. */
function standsFor({ pools: found, arm }) {
  const own = found.filter((one) => one.endsWith(`→ ${arm.profile}`)).map((one) => one.split(" ")[0]);
  return own.length ? `chosen for pool ${own.join(", ")}` : "serves";
}

function pools(status, models) {
  const names = new Set((models ?? []).map((one) => one.id));
  if (!models) return [];
  return status.choices
    .filter((one) => !names.has(one.subject))
    .map((one) => `${one.subject} → ${one.arm.profile}`);
}

function drafter(arm, choice) {
  const how = arm.depth ? `drafted by ${arm.drafter}` : "no speculation";
  if (choice?.pinned) {
    const measured = choice.measured_arm ? `; measured: depth ${choice.measured_arm.depth}` : "";
    return `${how}, set by an operator${measured}`;
  }
  return choice?.measured ? `${how}, chosen by measurements` : how;
}

function speed(last, row, format) {
  if (last) {
    const said = row ? note(`last request; measured ${format.tps(row.decode_tps)}`) : note("last request");
    return [h("span.big", {}, format.tps(last.decode_tps)), said];
  }
  if (row) return [h("span.big", {}, format.tps(row.decode_tps)), note("when it was measured")];
  return [format.unknown(), note("no request yet, and it was not measured")];
}

function watts({ value, reason, cap }, format) {
  if (!format.known(value)) return [h("span.unknown.big", {}, "unknown"), note(reason ?? "")];
  return [h("span.big", {}, format.watts(value)), note(cap)];
}

function note(text) {
  return h("span.note", {}, text);
}

/** While engines are started to be measured, no choice explains their depth. */
function measuring(operation) {
  if (operation?.state !== "running" || !MEASURES.has(operation.kind)) return null;
  return `It is being measured: ${operation.progress.note || operation.kind}`;
}

function why(arm, choice) {
  if (!choice) return "Nobody has chosen: it was asked for.";
  const same = choice.arm.depth === arm.depth && choice.arm.profile === arm.profile;
  if (same) return choice.reason;
  return `It runs at depth ${arm.depth}, while the choice is depth ${choice.arm.depth}: ${choice.reason}`;
}

function cost({ decision_id: id, subject, at, starts, seconds }, format) {
  const what = starts
    ? `${starts} engine ${starts === 1 ? "start" : "starts"}, ${format.duration(seconds)}`
    : "nothing: it compares what was measured before";
  return [`The latest choice, for ${subject}, took ${what}. `, h("span.muted", {}, `Decision ${id}, `, format.time(at), ".")];
}

function next({ next: step, mode }) {
  if (!step) return ["No request has been learnt from yet. ", h("span.muted", {}, MODES[mode] ?? "")];
  return [
    step.says,
    step.waits_for ? h("span.note", {}, `It waits: ${step.waits_for}.`) : null,
    step.act === "keep" ? null : h("span.note", {}, MODES[mode] ?? ""),
  ];
}

function rowOf(models, arm) {
  const model = (models ?? []).find((one) => one.id === arm?.profile);
  const row = model?.depths.find((one) => one.arm.depth === arm.depth);
  return row && row.decode_tps !== null ? { decode_tps: row.decode_tps } : null;
}

function power(devices, engine) {
  const device = (devices ?? []).find((one) => one.device === engine?.device) ?? devices?.[0];
  const field = device?.fields.find((one) => one.name === "power_w");
  if (!field) return device ? { value: null, reason: device.reason || "no sensor" } : null;
  const { current_w: cap, state } = device.power_cap;
  const limit = cap === null ? `cap ${state.replaceAll("_", " ")}` : `of a cap of ${cap} W, ${state}`;
  return { value: field.value, reason: field.reason, cap: limit };
}
