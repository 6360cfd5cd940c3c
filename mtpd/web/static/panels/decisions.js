/** What was decided, newest first; one of them opens with all that it stands on. */

import { absent } from "../lib/absent.js";
import { dialog } from "../lib/access.js";
import { drawn, h, parts } from "../lib/dom.js";
import { sentence, table } from "../lib/show.js";

const SHOWN = 25;

/** How an act is meant, by colour; the word stands beside it. */
const TONES = { choose: "good", keep: "", switch: "good", reject: "bad", roll_back: "bad", quarantine: "bad" };

/**
 * @param {HTMLElement} section
 * @param {import("../app.js").Context} ctx
 */
export function mount(section, ctx) {
  const { api, store, live, format, toasts } = ctx;
  const { body } = parts(section);
  const draw = drawn(body);
  let before = false;

  async function read() {
    let decisions;
    try {
      ({ decisions } = await api.get(`/decisions?limit=${SHOWN}`));
    } catch {
      return; // the line at the top says that nobody answers
    }
    before = true;
    draw(decisions, () =>
      decisions.length
        ? h("ol.timeline", {}, decisions.map((one) => row(one, format, () => open(one.id))))
        : h("p.empty", {}, "Nothing was decided yet. Tune measures a model and chooses its depth."),
    );
  }

  async function open(id) {
    try {
      explain(await api.get(`/explain?id=${id}`), format);
    } catch (error) {
      toasts.problem(error);
    }
  }

  store.subscribe(["link"], (link) => {
    if (link === "forbidden") before = false; // what may not be read any more is not shown any more
    if (!before) draw({ link }, () => absent(link));
  });
  live.on("stream.open", read);
  live.on("stream.reset", read);
  live.on("decision.made", read);
  live.on("operation.changed", ({ event }) => {
    if (event.operation.state === "done") read(); // outcomes are appended
  });
}

function row({ id, at, act, subject, reason, outcome }, format, open) {
  return h(
    "li",
    {},
    h(
      "button.entry",
      { type: "button", "data-key": `decision-${id}`, "aria-haspopup": "dialog", onclick: open },
      h("span.when", {}, format.time(at)),
      h(`span.tag${TONES[act] ? `.${TONES[act]}` : ""}`, {}, act.replaceAll("_", " ")),
      h("span.about", {}, subject),
      h("span.says", {}, reason),
      outcome ? h("span.outcome", {}, outcome) : null,
    ),
  );
}

/** The sentence first, then how it follows, then what that stands on. */
function explain(found, format) {
  const { decision, chain, rule, replay, rows, models, measurements } = found;
  const box = dialog(
    `Decision ${decision.id}: ${decision.act.replaceAll("_", " ")} ${decision.subject}`,
    h("p.lead", {}, decision.reason),
    h("p.muted.small", {}, made(decision, format)),
    part("How it follows", chain.length ? h("ol.steps", {}, chain.map((one) => h("li", {}, one))) : null),
    part("Evidence", decision.evidence.length ? evidence(decision, measurements) : null),
    rows.length ? part("What was compared", compared(rows, measurements, format)) : null,
    models.map((one) => model(one, format)),
    measurements.length ? repetitions(measurements, format) : null,
    part("Rule", rule ? h("p", {}, sentence(rule)) : null),
    part("The same again?", h("p", {}, h("strong", {}, replay.state.replaceAll("_", " ")), `: ${replay.sentence}`)),
  );
  box.classList.add("wide");
  // A link within the dialog opens what it leads to, and takes the focus there.
  for (const link of box.querySelectorAll("a[href^='#']")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      const target = box.querySelector(link.getAttribute("href"));
      target.closest("details")?.setAttribute("open", "");
      target.scrollIntoView({ block: "center" });
      target.focus({ preventScroll: true });
    });
  }
}

function made({ at, actor, operation_id: operation, predicted, outcome }, format) {
  return [
    format.time(at),
    actor ? `, asked for by ${actor}` : operation ? null : ", by the daemon itself",
    predicted ? `, expecting ${format.interval(predicted, format.tps)}` : null,
    operation ? `, in operation ${operation.slice(0, 8)}` : null,
    outcome ? `; ${outcome}` : null,
  ];
}

function part(title, content) {
  return content ? h("section.part", {}, h("h3", {}, title), content) : null;
}

function evidence({ evidence: lines, measurement_ids: ids }, measurements) {
  const known = new Set(measurements.map(({ id }) => id));
  const linked = ids.filter((id) => known.has(id));
  return [
    h("ul.bullets", {}, lines.map((one) => h("li", {}, one))),
    linked.length ? h("p.small", {}, "Measured in: ", links(linked)) : null,
  ];
}

/** So many numbers that a line stays one. */
const LINKED = 24;

function links(ids) {
  const shown = ids.slice(0, LINKED).map((id) => [h("a", { href: `#m-${id}` }, `#${id}`), " "]);
  const rest = ids.length - LINKED;
  return rest > 0 ? [...shown, `and ${rest} more below`] : shown;
}

function compared(rows, measurements, format) {
  return table(
    "Arms that were compared",
    ["Arm", { text: "tok/s", number: true }, "Residency", "Measured in", "Note"],
    rows.map(({ arm, decode_tps: tps, tps_interval: bounds, residency, note }) => [
      format.arm(arm),
      bounds ? format.interval(bounds) : format.or(tps, format.number),
      residency,
      links(measurements.filter((one) => same(one.arm, arm)).map(({ id }) => id)),
      note,
    ]),
  );
}

function same(one, other) {
  return ["profile", "drafter", "depth", "p_min"].every((key) => one[key] === other[key]);
}

function model({ profile, asks, stop, starts, cost, out, note }, format) {
  return h(
    "details.part",
    {},
    h("summary", {}, `${profile}: what was asked, started and left out`),
    note ? h("p.muted", {}, sentence(note)) : null,
    asks?.length
      ? h("ol.steps", {}, asks.map((one) => h("li", {}, `${format.arm(one.arm)}: ${one.reason}`)))
      : null,
    stop ? h("p", {}, sentence(`It ended: ${stop}`)) : null,
    cost
      ? h("p", {}, `A row costs ${format.interval(cost.row_cost)} of a plain step (${cost.source}).`)
      : null,
    starts.map((one) => start(one, format)),
    out?.length
      ? h("ul.bullets", {}, out.map((one) => h("li", {}, `${format.arm(one.arm)} ${one.verdict}: ${one.reason}`)))
      : null,
  );
}

function start({ arm, residency, reason, evidence: lines, failure }, format) {
  return h(
    "div.start",
    {},
    h("p", {}, h("strong", {}, `${format.arm(arm)} ${failure ? "failed" : residency}`), why(failure ?? reason)),
    lines.length
      ? h("ul.evidence", {}, lines.map(({ line, says }) => h("li", {}, h("span", {}, says), h("q", {}, line))))
      : null,
  );
}

function why(reason) {
  return reason ? `: ${sentence(reason)}` : "";
}

function repetitions(measurements, format) {
  const shown = table(
    "Stored repetitions",
    ["No.", "Arm", "Workload", { text: "Prompt", number: true }, { text: "tok/s", number: true }, "Residency", "Left out"],
    measurements.map((one) => [
      `#${one.id}`,
      format.arm(one.arm),
      one.workload,
      one.prompt,
      format.number(one.decode_tps),
      one.residency,
      one.excluded ?? "",
    ]),
  );
  measurements.forEach(({ id }, at) => {
    const head = shown.querySelectorAll("tbody th")[at];
    head.id = `m-${id}`;
    head.tabIndex = -1;
  });
  return h("details.part", {}, h("summary", {}, `The ${measurements.length} repetitions it stands on`), shown);
}
