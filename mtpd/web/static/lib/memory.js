/** Which bytes lie on the device, part by part: what a log lists, else what was predicted. */

const PARTS = [
  ["weights", "Weights"],
  ["kv", "KV cache"],
  ["recurrent", "State"],
  ["draft", "Draft head"],
  ["compute", "Compute"],
];

/**
 * @typedef {{key: string, name: string, bytes: number}} Part
 * @typedef {{arm: any, source: string, parts: Part[], total: number, verdict: any}} Share
 */

/**
 * What an engine takes, by part. "Other" is what the card counts beyond the listed parts: the
 * driver's context and its rounding.
 * @param {any} entry one of the status' `memory`
 * @returns {Share | null} null where nothing is listed and nothing is predicted
 */
export function shareOf({ arm, memory, held, printed }) {
  const listed = printed ?? memory.predicted;
  if (!listed) return null;
  const parts = PARTS.map(([key, name]) => ({ key, name, bytes: listed[`${key}_bytes`] ?? 0 }));
  const sum = parts.reduce((total, part) => total + part.bytes, 0);
  const measured = held?.source === "measured" ? held.count_bytes : null;
  const other = printed ? Math.max(0, (measured ?? sum) - sum) : memory.predicted.overhead_bytes;
  parts.push({ key: "other", name: "Other", bytes: other });
  return {
    arm,
    source: printed
      ? `listed by the engine's log${measured === null ? "" : "; other by the card's own count"}`
      : "predicted from the model file's header",
    parts: parts.filter((part) => part.bytes > 0),
    total: sum + other,
    verdict: memory,
  };
}

/**
 * A field of a device's reading.
 * @param {any} device
 * @param {string} name
 * @returns {{value: number | null, reason: string | null}}
 */
export function field(device, name) {
  const found = device?.fields.find((one) => one.name === name);
  return found ?? { value: null, reason: device?.reason || "the device has no such reading" };
}
