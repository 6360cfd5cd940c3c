/** Speed, energy, power and temperature over the last hours; a gap is a gap. */

import { absent } from "../lib/absent.js";
import { axis, chart } from "../lib/chart.js";
import { drawn, h, parts } from "../lib/dom.js";
import { sentence } from "../lib/show.js";
import { colour } from "../lib/theming.js";

const HEIGHT = 200;
/** Seconds back and seconds of a step. */
const SPANS = {
  "10 min": [600, 5],
  "1 h": [3600, 15],
  "6 h": [21_600, 60],
  "24 h": [86_400, 300],
};
const READ_MS = 10_000;
const HOTTEST_C = 110;
const METRICS = "decode_tps,stream_tps,joules_per_token,power_w,edge_c,junction_c,requests_waiting";

const SPEED = [
  { metric: "decode_tps", label: "replies, tok/s", shape: "tps", colour: "--series-1", scale: "y" },
  { metric: "stream_tps", label: "streams, events/s", shape: "number", colour: "--series-2", scale: "y" },
  { metric: "joules_per_token", label: "J/token", shape: "number", colour: "--series-4", scale: "right" },
];
const HEAT = [
  { metric: "power_w", label: "power, W", shape: "watts", colour: "--series-1", scale: "y" },
  { metric: "edge_c", label: "edge, °C", shape: "celsius", colour: "--series-5", scale: "right" },
  { metric: "junction_c", label: "junction, °C", shape: "celsius", colour: "--series-4", scale: "right" },
];
/** Lines that do not move, by the member of a device's limits. */
const LINES = [
  { limit: "declared_cap_w", label: "declared cap", shape: "watts", colour: "--series-1", scale: "y" },
  { limit: "gate_edge_c", label: "gate", shape: "celsius", colour: "--series-5", scale: "right" },
];

/**
 * @param {HTMLElement} section
 * @param {import("../app.js").Context} ctx
 */
export function mount(section, { api, store, live, format }) {
  const { header, body } = parts(section);
  const span = h(
    "select",
    { "aria-label": "How far back" },
    Object.keys(SPANS).map((name) => h("option", { value: name }, name)),
  );
  header.append(h("div.aside", {}, span));
  let chosen = false;
  const empty = h("div", { hidden: true });
  const drawEmpty = drawn(empty);
  body.append(empty);
  const speed = plotted(body, "Speed and energy of replies", format);
  const heat = plotted(body, "Power and temperature", format);

  let asked = 0;
  async function read() {
    if (document.hidden || store.get("link") !== "live") return;
    const [since, step] = SPANS[span.value];
    asked += 1;
    const mine = asked;
    let found;
    try {
      found = await api.get(`/history?metrics=${METRICS}&since_s=${since}&step_s=${step}`);
    } catch {
      return; // the line at the top says that nobody answers; what is drawn stays
    }
    if (mine !== asked) return; // a later question was answered first
    speed(found, SPEED, []);
    heat(found, HEAT, LINES);
  }

  span.addEventListener("change", () => {
    chosen = true;
    read();
  });
  store.subscribe(["status"], (status) => {
    // Of a daemon that has just started an hour would be an empty drawing.
    const wanted = status && status.uptime_s > SPANS["10 min"][0] ? "1 h" : "10 min";
    if (chosen || !status || span.value === wanted) return;
    span.value = wanted;
    read();
  });
  live.on("stream.open", read);
  store.subscribe(["link"], (link) => {
    const refused = link === "forbidden"; // what may not be read any more is not shown any more
    for (const plot of body.querySelectorAll(".plot")) plot.hidden = refused;
    empty.hidden = !refused;
    drawEmpty(refused, () => (refused ? absent(link) : null));
    read();
  });
  document.addEventListener("visibilitychange", read);
  setInterval(read, READ_MS);
}

/** One drawing with its legend, or the sentence that says why there is none. */
function plotted(body, title, format) {
  const legend = h("div.legend", {});
  const holder = h("div", {});
  const why = h("div", {});
  body.append(h("div.plot", {}, h("h3.part", {}, title), legend, holder, why));
  const drawLegend = drawn(legend);
  const drawWhy = drawn(why);
  let drawing = null;
  let before = "";
  let rows = [];

  return (found, wanted, lines) => {
    const shown = wanted
      .map((one) => ({ ...one, values: found.series.find(({ metric }) => metric === one.metric)?.mean }))
      .filter(({ values }) => values);
    const limits = found.limits.flatMap((device) =>
      lines
        .filter(({ limit }) => format.known(device[limit]))
        .map((one) => ({ ...one, dashed: true, values: Array(found.count).fill(device[one.limit]) })),
    );
    const missing = found.missing.filter(({ metric }) => wanted.some((one) => one.metric === metric));
    holder.hidden = !shown.length;
    drawWhy(missing, () => reasons(missing).map((one) => h("p.muted.small", {}, one)));
    if (!shown.length) {
      drawLegend(null, () => null);
      return;
    }
    rows = [...shown, ...limits];
    drawLegend(rows.map(latest), () => rows.map((one) => entry(one, format)));
    const begin = Date.parse(found.begin) / 1000;
    const times = Array.from({ length: found.count }, (_, at) => begin + at * found.step_s);
    const data = [times, ...rows.map(({ values }) => values)];
    const says = `${title}: ${rows.map((one) => spoken(one, format)).join("; ")}`;
    const kind = rows.map(({ label }) => label).join();
    if (!drawing) {
      drawing = chart(holder, { height: HEIGHT, label: says, options: () => options(rows), data });
    } else if (kind === before) drawing.show(data, says);
    else drawing.redraw(data, says);
    before = kind;
  };
}

function options(rows) {
  const right = rows.some(({ scale }) => scale === "right");
  // Both sides begin at zero: if both ended at their own highest value, lines would cover each
  // other. Temperatures have a scale of their own, energy stays in the lower half.
  const heat = rows.some(({ shape }) => shape === "celsius");
  const [floor, low] = heat ? [HOTTEST_C, 1.1] : [1, 2];
  const size = 54;
  return {
    legend: { show: false },
    cursor: { points: { size: 6 }, y: false },
    padding: [10, right ? 0 : 12, 0, 0],
    scales: { x: { time: true }, y: { range: fromZero(1, 1.1) }, right: { range: fromZero(floor, low) } },
    axes: [
      axis({ space: 70, values: (_plot, moments) => moments.map(clock) }),
      axis({ scale: "y", size }),
      ...(right ? [axis({ scale: "right", side: 1, size, grid: { show: false } })] : []),
    ],
    series: [
      {},
      ...rows.map(({ label, colour: name, scale, dashed }) => ({
        label,
        scale,
        stroke: colour(name),
        width: dashed ? 1 : 1.5,
        dash: dashed ? [6, 5] : undefined,
        spanGaps: false,
        points: { show: dashed ? false : lonely, size: 4, fill: colour(name) },
      })),
    ],
  };
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}

function fromZero(floor, times) {
  return (_plot, _low, high) => [0, Math.max((high ?? 0) * times, floor)];
}

/** A value between two gaps has no line: it is a point, or nobody would see it. */
function lonely(plot, at, _first, _last) {
  const values = plot.data[at];
  return values.filter((one) => one !== null).length < values.length / 4;
}

/** The newest value that there is, in words; what is old says so. */
function latest({ label, values, dashed }) {
  const known = values.filter((one) => one !== null);
  const now = values.slice(-2).find((one) => one !== null);
  return { label, dashed: Boolean(dashed), now: now ?? null, last: known.at(-1) ?? null };
}

function entry(one, format) {
  const { now, last } = latest(one);
  const shape = format[one.shape];
  const value = now !== null ? shape(now) : last !== null ? `last ${shape(last)}` : "none in this time";
  return h(
    "span.entry",
    {},
    h(`span.key${one.dashed ? ".dashed" : ""}`, { "aria-hidden": "true", "data-colour": one.colour }),
    `${one.label} `,
    h("strong", {}, value),
  );
}

function spoken(one, format) {
  const known = one.values.filter((value) => value !== null);
  if (!known.length) return `${one.label}: nothing in this time`;
  const shape = format[one.shape];
  if (one.dashed) return `${one.label} at ${shape(known[0])}`;
  return `${one.label} between ${shape(Math.min(...known))} and ${shape(Math.max(...known))}`;
}

const NAMES = {
  decode_tps: "the speed of replies",
  stream_tps: "the speed of streams",
  joules_per_token: "the energy of a token",
  power_w: "power",
  edge_c: "the edge temperature",
  junction_c: "the junction temperature",
};

/** One sentence for all that is missing for the same reason. */
function reasons(missing) {
  const whys = [...new Set(missing.map(({ reason }) => reason))];
  return whys.map((why) => {
    const names = missing.filter(({ reason }) => reason === why).map(({ metric }) => NAMES[metric]);
    const last = names.pop();
    const what = names.length ? `${names.join(", ")} and ${last} are` : `${last} is`;
    return sentence(`${what} not known: ${why}`);
  });
}
