/** Small shapes that several panels share. */

import { h, svg } from "./dom.js";

/**
 * A list of names with values.
 * @param {...[string, import("./dom.js").Child | import("./dom.js").Child[]]} pairs
 */
export function facts(...pairs) {
  return h(
    "dl.facts",
    {},
    pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}

/**
 * A table with a heading of its own for who cannot see it.
 * @param {string} caption
 * @param {(string | {text: string, number: boolean})[]} columns
 * @param {import("./dom.js").Child[][]} rows the first cell of a row names it
 */
export function table(caption, columns, rows) {
  const heads = columns.map((one) => (typeof one === "string" ? { text: one, number: false } : one));
  const side = (at) => (heads[at].number ? "number" : null);
  return h(
    "div.scroll",
    { tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption.visually-hidden", {}, caption),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map(({ text }, at) => h("th", { scope: "col", class: side(at) }, text)),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((cells) =>
          h(
            "tr",
            {},
            cells.map((cell, at) =>
              at ? h("td", { class: side(at) }, cell) : h("th", { scope: "row" }, cell),
            ),
          ),
        ),
      ),
    ),
  );
}

/**
 * A mark on a line from 0 to 1, with its interval.
 * @param {{low: number, mid: number, high: number}} interval
 */
export function range({ low, mid, high }) {
  const x = (value) => 100 * Math.min(1, Math.max(0, value));
  return svg(
    "svg",
    { class: "range", viewBox: "0 0 100 12", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "rail", x: 0, y: 5, width: 100, height: 2 }),
    svg("rect", { class: "span", x: x(low), y: 3, width: Math.max(1, x(high) - x(low)), height: 6 }),
    svg("rect", { class: "mid", x: x(mid) - 1, y: 1, width: 2, height: 10 }),
  );
}

/**
 * A clause of the daemon as a sentence.
 * @param {string} clause
 */
export function sentence(clause) {
  const text = clause.trim();
  if (!text) return "";
  return `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}

/**
 * The engine that the page is mostly about: one that serves before one that only starts.
 * @param {any} status
 * @returns {any} null where none runs
 */
export function foremost(status) {
  const running = (status?.engines ?? []).filter((one) => one.state !== "stopped" && one.arm);
  return running.find((one) => one.state === "ready") ?? running[0] ?? null;
}
