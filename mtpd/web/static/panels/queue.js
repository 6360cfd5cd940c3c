/** Who waits, who runs, and how fast the answers come. */

import { absent } from "../lib/absent.js";
import { drawn, h, parts } from "../lib/dom.js";
import { table } from "../lib/show.js";

/** No event tells how far a stream is: while there is one, the status is read this often. */
const READ_MS = 2000;

/**
 * @param {HTMLElement} section
 * @param {import("../app.js").Context} ctx
 */
export function mount(section, { api, store, format }) {
  const { header, body } = parts(section);
  const aside = h("p.aside", {});
  header.append(aside);
  const draw = drawn(body);
  const again = reader(api, store);
  store.subscribe(["status", "link"], (status, link) => {
    if (!status) {
      draw({ link }, () => absent(link));
      return;
    }
    const { queue, queue_rows: rows, requests } = status;
    if (requests.length) again();
    aside.textContent = `${queue.in_flight} running, ${queue.waiting} of ${queue.limit} waiting`;
    draw({ queue, rows, requests }, () =>
      requests.length
        ? [byModel(rows), openOnes(requests, rows, format)]
        : h("p.empty", {}, idle(queue, format)),
    );
  });
}

/** Reads the status once more in a while, however often it is asked to. */
function reader(api, store) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      if (document.hidden || store.get("link") !== "live") return;
      try {
        store.set("status", await api.get("/status"));
      } catch {
        // The line at the top says that nobody answers.
      }
    }, READ_MS);
  };
}

function idle(queue, format) {
  return `Nobody is being served. Up to ${queue.limit} requests may wait, each ${format.duration(queue.timeout_s)} at most.`;
}

function byModel(rows) {
  return table(
    "Open requests by model and priority",
    ["Model", "Priority", { text: "Running", number: true }, { text: "Waiting", number: true }],
    rows.map(({ profile, priority, running, waiting }) => [profile, priority, running, waiting]),
  );
}

function openOnes(requests, rows, format) {
  const all = rows.reduce((sum, one) => sum + one.running + one.waiting, 0);
  return [
    h("h3.part", {}, requests.length < all ? `The oldest ${requests.length} of ${all}` : "Requests"),
    table(
      "Open requests, the oldest first",
      ["Request", "State", { text: "Age", number: true }, { text: "Speed", number: true }],
      requests.map((one) => [
        [h("span", {}, one.profile), h("span.sub", {}, one.path)],
        stateOf(one),
        format.duration(one.age_s),
        speedOf(one, format),
      ]),
    ),
  ];
}

function stateOf({ state, depth, priority, caller }) {
  return [
    state === "running" && depth !== null ? `running at depth ${depth}` : state,
    priority === "normal" ? null : h("span.tag", {}, priority),
    caller ? h("span.sub", {}, `token ${caller}`) : null,
  ];
}

/** llama-server sends an event per token, so events per second are nearly tokens per second. */
function speedOf({ events, events_per_s: rate, state }, format) {
  if (state === "waiting") return "";
  if (events === null) return h("span.muted", {}, "no stream");
  return [
    format.known(rate) ? `≈ ${format.tps(rate)}` : format.unknown(),
    h("span.sub", {}, `${events} events`),
  ];
}
