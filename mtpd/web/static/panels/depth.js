/** Speed at every draft depth as it was measured, with intervals, and the depth that was chosen. */

import { absent } from "../lib/absent.js";
import { axis, chart } from "../lib/chart.js";
import { drawn, h, parts } from "../lib/dom.js";
import { foremost, table } from "../lib/show.js";
import { colour } from "../lib/theming.js";

const HEIGHT = 320;

/**
 * @param {HTMLElement} section
 * @param {import("../app.js").Context} ctx
 */
export function mount(section, { store, format }) {
  const { header, body } = parts(section);
  const which = h("select", { "aria-label": "Model of the depth curve", "data-key": "which" });
  header.append(h("div.aside", {}, which));
  const empty = h("div", {});
  const plot = h("div", { hidden: true });
  const rows = h("div", {});
  body.append(empty, plot, rows);
  const drawEmpty = drawn(empty);
  const drawRows = drawn(rows);
  const drawWhich = drawn(which);
  let curve = null;
  let before = "";
  let asked = "";

  const update = (status, models, link) => {
    const served = foremost(status)?.arm ?? null;
    const found = models ?? [];
    const names = found.map((one) => one.id);
    const name = names.includes(asked) ? asked : (served?.profile ?? measuredFirst(found));
    which.hidden = names.length < 2;
    drawWhich(names, () => names.map((one) => h("option", { value: one }, one)));
    which.value = name ?? "";
    const model = found.find((one) => one.id === name);
    const shown = model ? pointsOf(model, served) : { points: [], rows: [] };
    plot.hidden = !shown.points.length;
    drawEmpty({ name, any: shown.points.length > 0, ready: models !== null, link }, () => {
      if (models === null) return absent(link);
      return shown.points.length ? null : h("p.empty", {}, unmeasured(name));
    });
    drawRows(shown.rows, () => (shown.rows.length ? details(shown.rows, format) : null));
    const now = JSON.stringify(shown.points);
    if (now === before) return;
    before = now;
    if (!shown.points.length) return;
    curve ??= createCurve(plot);
    curve.show(name, shown.points, format);
  };

  which.addEventListener("change", () => {
    asked = which.value;
    update(store.get("status"), store.get("models"), store.get("link"));
  });
  store.subscribe(["status", "models", "link"], update);
}

function measuredFirst(models) {
  return (models.find((one) => one.depths.length) ?? models[0])?.id;
}

function unmeasured(name) {
  return name
    ? `${name} was not measured yet. Tune measures its depths and chooses one.`
    : "There is no model.";
}

/** Every depth that the profile allows, measured or not. */
function pointsOf(model, served) {
  const choice = model.choice?.measured_arm ?? null;
  const rows = [];
  for (let depth = 0; depth <= model.max_depth; depth += 1) {
    const row = model.depths.find((one) => one.arm.depth === depth) ?? null;
    const memory = model.memory.depths.find((one) => one.depth === depth) ?? null;
    rows.push({
      depth,
      row,
      memory,
      chosen: choice?.depth === depth,
      served: served?.profile === model.id && served.depth === depth,
    });
  }
  const points = rows
    .filter(({ row }) => row && row.decode_tps !== null)
    .map(({ depth, row, chosen, served: serves }) => {
      const { low, high } = row.tps_interval ?? { low: null, high: null };
      return { depth, tps: row.decode_tps, low, high, chosen, serves };
    });
  return { points, rows: points.length ? rows : [] };
}

function details(rows, format) {
  const energy = rows.some(({ row }) => format.known(row?.tokens_per_joule));
  return table(
    "Depths, measured",
    [
      "Depth",
      { text: "tok/s", number: true },
      { text: "Tokens per step", number: true },
      ...(energy ? [{ text: "Tokens per joule", number: true }] : []),
      "Residency",
    ],
    rows.map(({ depth, row, memory, chosen, served }) => [
      [
        String(depth),
        chosen ? h("span.tag.good", {}, "chosen") : null,
        served ? h("span.tag", {}, "serves") : null,
      ],
      row ? speedOf(row, format) : h("span.muted", {}, "not measured"),
      row ? format.or(row.tokens_per_step, format.number) : "",
      ...(energy ? [energyOf(row, format)] : []),
      row ? row.residency : h("span.muted", {}, memory ? `forecast: ${memory.verdict.replaceAll("_", " ")}` : ""),
    ]),
  );
}

function energyOf(row, format) {
  return row ? format.or(row.tokens_per_joule, format.number, row.energy_note) : "";
}

function speedOf(row, format) {
  if (row.decode_tps === null) return h("span.muted", {}, row.note || "no speed");
  const { low, high } = row.tps_interval ?? {};
  return [
    format.number(row.decode_tps),
    format.known(low) ? h("span.muted.small", {}, ` [${format.number(low)}, ${format.number(high)}]`) : null,
  ];
}

/** The drawing; its whiskers and marks are drawn over uPlot's own points. */
function createCurve(container) {
  let points = [];
  let made = null;
  const data = () => [
    points.map((one) => one.depth),
    points.map((one) => one.tps),
    points.map((one) => one.low),
    points.map((one) => one.high),
  ];
  const options = () => ({
    legend: { show: false },
    cursor: { show: false },
    padding: [14, 12, 0, 0],
    scales: {
      x: { time: false, range: () => [-0.35, Math.max(...points.map((one) => one.depth)) + 0.35] },
      y: { range: (_plot, low, high) => [0, Math.max(high, low, 1) * 1.12] },
    },
    axes: [
      axis({
        label: "draft depth",
        size: 32,
        splits: () => points.map((one) => one.depth),
        values: (_plot, splits) => splits.map(String),
        grid: { show: false },
      }),
      axis({ label: "tok/s", size: 46 }),
    ],
    series: [
      {},
      { stroke: colour("--series-1"), width: 2, points: { show: false } },
      { show: true, paths: () => null, points: { show: false } },
      { show: true, paths: () => null, points: { show: false } },
    ],
    hooks: { draw: [(plot) => marks(plot, points)] },
  });
  return {
    show(name, next, format) {
      points = next;
      const label = says(name, points, format);
      if (!made) made = chart(container, { height: HEIGHT, label, options, data: data() });
      else made.show(data(), label);
    },
  };
}

function says(name, points, format) {
  const each = points.map(({ depth, tps, chosen }) => {
    return `depth ${depth}: ${format.tps(tps)}${chosen ? ", chosen" : ""}`;
  });
  return `Decode speed of ${name} by draft depth. ${each.join("; ")}.`;
}

function marks(plot, points) {
  const { ctx } = plot;
  const ratio = devicePixelRatio;
  const line = colour("--series-1");
  const good = colour("--good");
  ctx.save();
  for (const { depth, tps, low, high, chosen, serves } of points) {
    const x = plot.valToPos(depth, "x", true);
    const y = plot.valToPos(tps, "y", true);
    if (low !== null) whisker(plot, { x, low, high, ratio, colour: chosen ? good : line });
    ctx.beginPath();
    ctx.arc(x, y, (chosen ? 6 : 4) * ratio, 0, 2 * Math.PI);
    ctx.fillStyle = chosen ? good : line;
    ctx.fill();
    if (chosen || serves) caption(ctx, { x, y, ratio, text: words(chosen, serves), colour: colour("--text") });
  }
  ctx.restore();
}

function words(chosen, serves) {
  return [chosen ? "chosen" : "", serves && !chosen ? "serves" : ""].filter(Boolean).join(", ");
}

function whisker({ ctx, valToPos }, { x, low, high, ratio, colour: stroke }) {
  const [bottom, top] = [valToPos(low, "y", true), valToPos(high, "y", true)];
  const cap = 5 * ratio;
  ctx.strokeStyle = stroke;
  ctx.lineWidth = 1.5 * ratio;
  ctx.beginPath();
  ctx.moveTo(x, bottom);
  ctx.lineTo(x, top);
  for (const y of [bottom, top]) {
    ctx.moveTo(x - cap, y);
    ctx.lineTo(x + cap, y);
  }
  ctx.stroke();
}

function caption(ctx, { x, y, ratio, text, colour: fill }) {
  ctx.font = `600 ${12 * ratio}px system-ui, sans-serif`;
  ctx.textAlign = "center";
  ctx.fillStyle = fill;
  ctx.fillText(text, x, y + 26 * ratio);
}
