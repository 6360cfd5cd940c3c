/** How often a draft is accepted, position by position: as measured, and in live traffic. */

import { absent } from "../lib/absent.js";
import { drawn, h, parts } from "../lib/dom.js";
import { foremost, range, table } from "../lib/show.js";

/**
 * @param {HTMLElement} section
 * @param {import("../app.js").Context} ctx
 */
export function mount(section, { store, format }) {
  const { header, body } = parts(section);
  const aside = h("span.aside", {});
  header.append(aside);
  const draw = drawn(body);
  store.subscribe(["status", "models", "link"], (status, models, link) => {
    if (!status || !models) {
      draw({ link }, () => absent(link));
      return;
    }
    const name = foremost(status)?.profile ?? models.find((one) => one.depths.length)?.id;
    aside.textContent = name ?? "";
    const model = models.find((one) => one.id === name);
    const live = status.live.find((one) => one.profile === name) ?? null;
    const rows = [...measured(model), ...classes(live)];
    const excluded = Object.entries(live?.excluded ?? {});
    draw({ name, rows, excluded }, () =>
      rows.length ? [shown(rows, format), left(excluded)] : h("p.empty", {}, nothing(name)),
    );
  });
}

function nothing(name) {
  return name
    ? `Nothing was drafted by ${name} yet: neither a measurement nor a request shows its acceptance.`
    : "No model runs, and none was measured.";
}

/** Of the row that shows most positions, as it shows all that the others do. */
function measured(model) {
  const rows = model?.depths ?? [];
  const most = (best, row) => (row.acceptance.length > best.acceptance.length ? row : best);
  const row = rows.reduce(most, { acceptance: [] });
  if (!row.acceptance.length) return [];
  return [
    {
      name: "Measured",
      detail: `depth ${row.arm.depth}, ${row.repetitions} repetitions`,
      alphas: row.acceptance.map((one) => one.alpha),
      why: null,
    },
  ];
}

function classes(live) {
  return (live?.classes ?? []).flatMap(({ name, share, arms }) =>
    arms.map((arm) => ({
      name: name.replaceAll("/", " · "),
      detail: `live, depth ${arm.arm.depth}, ${requests(arm.requests)}, ${Math.round(share * 100)} % of tokens`,
      alphas: arm.alphas,
      why: arm.unidentified,
    })),
  );
}

/** Old requests count less, so that there may be parts of one. */
function requests(count) {
  const whole = Math.max(1, Math.round(count));
  return `${whole} ${whole === 1 ? "request" : "requests"}`;
}

function shown(rows, format) {
  const positions = Math.max(1, ...rows.map((row) => row.alphas.length));
  const columns = Array.from({ length: positions }, (_, at) => `α${subscript(at + 1)}`);
  return table(
    "Acceptance by draft position",
    ["Workload", ...columns],
    rows.map(({ name, detail, alphas, why }) => [
      [name, h("span.note", {}, detail)],
      ...Array.from({ length: positions }, (_, at) => cell(alphas[at], at ? null : why, format)),
    ]),
  );
}

function cell(alpha, why, format) {
  if (!alpha) return why ? format.unknown(why) : h("span.muted", { "aria-label": "not drafted" }, "–");
  const bounds = `${alpha.low.toFixed(2)} to ${alpha.high.toFixed(2)}`;
  return h(
    "div.alpha",
    { title: `95 % interval ${bounds}` },
    h("b", {}, alpha.mid.toFixed(2)),
    range(alpha),
    h("span.muted.small", {}, bounds),
  );
}

function left(excluded) {
  if (!excluded.length) return null;
  const each = excluded.map(([reason, count]) => `${count} ${reason}`).join(", ");
  return h("p.muted.small", {}, `Requests that do not count: ${each}.`);
}

function subscript(number) {
  return [...String(number)].map((digit) => "₀₁₂₃₄₅₆₇₈₉"[Number(digit)]).join("");
}
