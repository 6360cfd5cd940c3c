/** Where the model lies, and the lines that prove it. */

import { absent } from "../lib/absent.js";
import { drawn, h, parts } from "../lib/dom.js";
import { sentence } from "../lib/show.js";

/** How each verdict is meant: by colour, and by a word that needs no colour. */
const VERDICTS = {
  resident: { tone: "good", word: "Resident" },
  host: { tone: "plain", word: "On the processor" },
  evicted: { tone: "bad", word: "Evicted" },
  spilled: { tone: "bad", word: "Spilled" },
  unknown: { tone: "warn", word: "Unknown" },
};

/** What the verdict rests on. */
const RESTS_ON = {
  measured: "The card's own count agrees.",
  reported: "It rests on what the engine says of itself.",
  suspected: "It is suspected: a reading says so, no line of the engine does.",
};

/** Lines that are quoted at once; the others are one press away. */
const SHOWN = 3;

/**
 * @param {HTMLElement} section
 * @param {import("../app.js").Context} ctx
 */
export function mount(section, { store, access }) {
  const { body } = parts(section);
  const draw = drawn(body);
  store.subscribe(["status", "link"], (status, link) => {
    if (!status) {
      draw({ link }, () => absent(link, access.askForToken));
      return;
    }
    const engines = status.engines.filter((one) => one.state !== "stopped");
    const shown = engines.map(({ profile, arm, state, residency, failure, device }) => {
      return { profile, arm, state, residency, failure, device };
    });
    const { unusable, degraded, config } = status;
    const problems = [...degraded, ...unusable, ...(config?.problems ?? [])];
    draw({ shown, problems }, () => [
      shown.length ? shown.map(verdict) : nothing(),
      problems.length ? complaints(problems) : null,
    ]);
  });
}

function nothing() {
  return h(
    "div.verdict",
    { "data-tone": "plain", "data-verdict": "stopped" },
    h("p.word", {}, "No model runs"),
    h("p", {}, "The first request for a model starts its engine; a button below does so, too."),
  );
}

function verdict({ profile, arm, state, residency, failure, device }) {
  const named = arm ? `${arm.profile} at depth ${arm.depth}` : profile;
  if (failure) return failed(named, failure);
  const { tone, word } = VERDICTS[residency.state] ?? VERDICTS.unknown;
  const loads = state !== "ready" && residency.state === "unknown";
  return h(
    "div.verdict",
    { "data-tone": loads ? "plain" : tone, "data-verdict": residency.state },
    h("p.word", {}, loads ? `${state[0].toUpperCase()}${state.slice(1)}` : word),
    h(
      "div",
      {},
      h("p.who", {}, h("strong", {}, named), ` on ${device}`, state === "ready" ? "" : `, ${state}`),
      h("p", {}, sentence(residency.reason)),
      residency.contradiction
        ? h("p.against", {}, `But: ${sentence(residency.contradiction)}`)
        : null,
      evidence(residency, profile),
    ),
  );
}

function evidence({ evidence: lines, confidence }, profile) {
  if (!lines.length) return h("p.muted", {}, "No line speaks for or against it yet.");
  const [first, rest] = [lines.slice(0, SHOWN), lines.slice(SHOWN)];
  return [
    quoted(first),
    rest.length
      ? h(
          "details",
          { "data-key": `evidence-${profile}` },
          h("summary", {}, `${rest.length} more ${rest.length === 1 ? "line" : "lines"} of evidence`),
          quoted(rest),
        )
      : null,
    h("p.muted.small", {}, RESTS_ON[confidence] ?? ""),
  ];
}

function quoted(lines) {
  return h(
    "ul.evidence",
    {},
    lines.map(({ line, says }) => h("li", {}, h("span", {}, says), h("q", {}, line))),
  );
}

function failed(named, { failure, reason, hint, retry_in_s: retry }) {
  return h(
    "div.verdict",
    { "data-tone": "bad", "data-verdict": "failed" },
    h("p.word", {}, "Failed"),
    h(
      "div",
      {},
      h("p.who", {}, h("strong", {}, named), `, ${failure.replaceAll("_", " ")}`),
      h("p", {}, sentence(reason)),
      hint ? h("p.muted", {}, hint) : null,
      retry === null ? null : h("p.muted", {}, "It is tried again by itself."),
    ),
  );
}

function complaints(problems) {
  return h(
    "ul.complaints",
    { "aria-label": "Problems" },
    problems.map((one) => h("li", {}, one)),
  );
}
