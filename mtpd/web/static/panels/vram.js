/** Device memory: what lies in it, against what there is. */

import { absent } from "../lib/absent.js";
import { drawn, h, parts, svg } from "../lib/dom.js";
import { field, shareOf } from "../lib/memory.js";
import { facts, foremost, sentence } from "../lib/show.js";

/**
 * @param {HTMLElement} section
 * @param {import("../app.js").Context} ctx
 */
export function mount(section, { store, format }) {
  const { body } = parts(section);
  const draw = drawn(body);
  store.subscribe(["status", "gpu", "models", "link"], (status, gpu, models, link) => {
    if (!status || !gpu) {
      draw({ link }, () => absent(link));
      return;
    }
    const engine = foremost(status);
    const device = gpu.find((one) => one.device === engine?.device) ?? gpu[0];
    const total = field(device, "vram_total_bytes");
    const shown = {
      device: device?.device,
      total: total.value,
      used: field(device, "vram_used_bytes").value,
      reason: total.reason,
      host: device?.host ?? null,
      shares: status.memory.map(shareOf).filter(Boolean),
      entries: status.memory.map(({ arm, memory, held }) => ({ arm, memory, held })),
      headroom: headroomOf(models ?? []),
    };
    draw(shown, () => (format.known(shown.total) ? card(shown, format) : without(shown, format)));
  });
}

/** It is the same for every model of a card. */
function headroomOf(models) {
  const found = models.map((one) => one.memory.headroom_bytes).find((bytes) => bytes !== null);
  return found ?? null;
}

function card(shown, format) {
  const { total, used, shares, headroom } = shown;
  const ours = shares.reduce((sum, share) => sum + share.total, 0);
  const others = format.known(used) ? Math.max(0, used - ours) : 0;
  const segments = shares.flatMap((share) => share.parts);
  const label = segments.map(({ name, bytes }) => `${name} ${format.bytes(bytes)}`).join(", ");
  return [
    facts(
      ["In use", [h("span.big", {}, format.or(used, format.bytes, shown.reason ?? "")), note(`of ${format.bytes(total)}`)]],
      [
        "Left",
        [
          h("span.big", {}, format.known(used) ? format.bytes(total - used) : format.unknown()),
          headroom === null ? null : note(`${format.bytes(headroom)} of it stays free by design`),
        ],
      ],
    ),
    stack({ segments, others, total, headroom, label: label || "nothing of ours" }),
    segments.length ? legend(segments, others, format) : h("p.empty", {}, "No engine of ours holds memory."),
    ...shares.map((share) => origin(share, shares.length > 1)),
  ];
}

function note(text) {
  return h("span.note", {}, text);
}

function stack({ segments, others, total, headroom, label }) {
  const width = 1000;
  const scale = width / total;
  let x = 0;
  const bars = [...segments, { key: "others", bytes: others }].map(({ key, bytes }) => {
    const bar = svg("rect", {
      class: `part ${key}`,
      x,
      y: 0,
      width: Math.max(0, Math.min(bytes * scale, width - x) - 1),
      height: 34,
    });
    x = Math.min(width, x + bytes * scale);
    return bar;
  });
  const budget = width - (headroom ?? 0) * scale;
  return svg(
    "svg",
    { class: "stack", viewBox: `0 0 ${width} 34`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("rect", { class: "free", x: 0, y: 0, width, height: 34 }),
    bars,
    svg("rect", { class: "budget", x: budget - 1.5, y: 0, width: 3, height: 34 }),
  );
}

function legend(segments, others, format) {
  const all = others ? [...segments, { key: "others", name: "Other programs", bytes: others }] : segments;
  return h(
    "ul.legend",
    {},
    all.map(({ key, name, bytes }) =>
      h("li", {}, h(`span.swatch.${key}`, { "aria-hidden": "true" }), name, h("b", {}, format.bytes(bytes))),
    ),
    h("li", {}, h("span.swatch.budget", { "aria-hidden": "true" }), "The line is the budget"),
  );
}

function origin({ arm, source, verdict }, named) {
  const whose = named ? `${arm.profile}@${arm.depth}: ` : "";
  return h("p.muted.small", {}, `${whose}${sentence(source)} ${named ? "Forecast, if it were alone" : "Forecast"}: ${sentence(verdict.reason)}`);
}

/** Without a card there is nothing to fit into; engines share the machine's memory. */
function without({ reason, host, entries }, format) {
  return [
    h("p", {}, "There is no card: engines use the machine's memory."),
    host
      ? facts(
          ["Machine", format.bytes(host.total_bytes)],
          ["Available", format.bytes(host.available_bytes)],
          ["An engine may take", format.bytes(host.budget_bytes)],
        )
      : h("p", {}, format.unknown(reason ?? "the machine's memory cannot be read")),
    entries.length
      ? facts(
          ...entries.map(({ arm, held }) => [
            `${arm.profile}@${arm.depth} holds`,
            [
              held ? format.or(held.count_bytes, format.bytes, held.reason) : format.unknown("it has no process"),
              held && format.known(held.count_bytes) ? h("span.note", {}, held.reason) : null,
            ],
          ]),
        )
      : h("p.empty", {}, "No engine runs."),
  ];
}
