/** Values with units. What is unknown is the word "unknown" with its reason, never 0. */

import { h } from "./dom.js";

const KIB = 1024;
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** @returns {boolean} whether there is a number */
export function known(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/**
 * A number with about three digits.
 * @param {number} value
 */
export function number(value) {
  const size = Math.abs(value);
  const digits = size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : 2;
  return value.toLocaleString("en", {
    minimumFractionDigits: Number.isInteger(value) ? 0 : digits,
    maximumFractionDigits: digits,
  });
}

/** @param {number} value bytes */
export function bytes(value) {
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= KIB && unit < UNITS.length - 1) {
    size /= KIB;
    unit += 1;
  }
  return `${number(unit ? size : Math.round(size))} ${UNITS[unit]}`;
}

/** @param {number} value tokens per second */
export function tps(value) {
  return `${number(value)} tok/s`;
}

/** @param {number} value 0 to 1 */
export function percent(value) {
  return `${number(value * 100)} %`;
}

/** @param {number} value watts */
export function watts(value) {
  return `${number(value)} W`;
}

/** @param {number} value degrees */
export function celsius(value) {
  return `${number(value)} °C`;
}

/** @param {number} value seconds */
export function duration(value) {
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${number(value)} s`;
  const minutes = Math.floor(value / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d`;
}

/**
 * A time of the API as a clock shows it here.
 * @param {string} at RFC 3339
 * @returns {HTMLElement} with the whole time as its title
 */
export function time(at) {
  const when = new Date(at);
  const today = when.toDateString() === new Date().toDateString();
  const clock = when.toLocaleTimeString("en-GB");
  const day = when.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return h("time", { datetime: at, title: at }, today ? clock : `${day}, ${clock}`);
}

/**
 * An arm as the daemon's sentences name it.
 * @param {{profile: string, depth: number}} arm
 */
export function arm(arm) {
  return `${arm.profile}@${arm.depth}`;
}

/**
 * The word for what nobody knows.
 * @param {string} [reason] why; shown beside it
 * @returns {HTMLElement}
 */
export function unknown(reason) {
  return h("span.unknown", {}, "unknown", reason ? h("span.why", {}, ` (${reason})`) : null);
}

/**
 * A value by one of the functions above, or "unknown".
 * @param {number | null | undefined} value
 * @param {(value: number) => string} shape
 * @param {string} [reason] why there may be none
 * @returns {string | HTMLElement}
 */
export function or(value, shape, reason) {
  return known(value) ? shape(value) : unknown(reason);
}

/**
 * A value with the bounds of its interval.
 * @param {{low: number, mid: number, high: number} | null} interval
 * @param {(value: number) => string} [shape]
 */
export function interval(found, shape = number) {
  if (!found) return unknown();
  return `${shape(found.mid)} [${number(found.low)}, ${number(found.high)}]`;
}
