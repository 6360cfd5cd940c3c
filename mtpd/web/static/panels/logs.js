/** The log of the daemon and its engines as it comes; lines that are evidence are marked. */

import { BASE } from "../lib/api.js";
import { h, parts } from "../lib/dom.js";
import { follow } from "../lib/follow.js";

/** Lines in the document; the oldest go. */
const KEPT = 800;
const TAIL = 300;
/** What a line can be evidence of, as the API names it and as the list does. */
const KINDS = [
  ["", "Every line"],
  ["start,residency,speculation,failure", "Evidence of a start"],
  ["residency", "Residency"],
  ["speculation", "Speculation"],
  ["acceptance", "Acceptance"],
  ["request", "Requests"],
  ["failure", "Failures"],
];

/**
 * @param {HTMLElement} section
 * @param {import("../app.js").Context} ctx
 */
export function mount(section, { api, store }) {
  const { header, body } = parts(section);
  const source = h("select", { "aria-label": "Whose lines" });
  const kind = h(
    "select",
    { "aria-label": "Which lines" },
    KINDS.map(([value, text]) => h("option", { value }, text)),
  );
  const pause = h("button", { type: "button", "aria-pressed": "false" }, "Pause");
  header.append(h("div.aside.row", {}, source, kind, pause));
  const list = h("ol.log", { tabindex: "0", "aria-label": "Log lines" });
  const note = h("p.muted.small", { role: "status" });
  body.append(list, note);
  const view = lines(list);
  let paused = false;
  let waiting = [];
  let state = "connecting";

  const stream = follow(api, {
    url: () => `${BASE}/logs?${asked(source.value, kind.value)}`,
    onState(now) {
      state = now;
      tell();
    },
    onEvent(type, data) {
      if (type === "log.lines") take(data.lines);
      else if (type === "stream.reset") take([{ gap: data.reason }]);
    },
  });

  function take(found) {
    if (paused) waiting = [...waiting, ...found].slice(-KEPT);
    else view.add(found);
    tell();
  }

  function tell() {
    const says = [];
    if (state === "lost") says.push("The connection is lost; it is tried again.");
    if (state === "forbidden") says.push("A token of the scope read is needed.");
    if (paused) says.push(`Paused: ${waiting.length} ${waiting.length === 1 ? "line" : "lines"} since.`);
    if (state === "live" && !paused && !list.children.length) says.push("No such line yet.");
    note.textContent = says.join(" ");
  }

  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on" : "Pause";
    if (!paused) {
      view.add(waiting);
      waiting = [];
    }
    tell();
  });
  for (const select of [source, kind]) {
    select.addEventListener("change", () => {
      view.clear();
      waiting = [];
      stream.restart();
    });
  }
  store.subscribe(["models"], (models) => offer(source, models ?? []));
  store.subscribe(["access"], (access) => {
    if (access && state === "forbidden") stream.retry();
  });
  store.subscribe(["link"], (link) => {
    if (link === "live" && state === "lost") stream.retry();
    if (link === "forbidden" && state === "live") {
      view.clear(); // the token was given up, and this stream was opened with it
      waiting = [];
      stream.restart();
    }
  });
  stream.start();
}

function asked(source, about) {
  const query = new URLSearchParams({ follow: "true", tail: String(TAIL) });
  const [what, name] = source.split(":", 1).concat(source.slice(source.indexOf(":") + 1));
  if (what === "model") query.set("model", name);
  else if (what) query.set("source", what);
  if (about) query.set("about", about);
  return query;
}

/** Keep the list of sources true without taking the choice away. */
function offer(select, models) {
  const wanted = [
    ["", "All"],
    ["daemon", "The daemon"],
    ["engines", "All engines"],
    ...models.map(({ id }) => [`model:${id}`, id]),
  ];
  const now = JSON.stringify(wanted);
  if (select.dataset.offers === now) return;
  select.dataset.offers = now;
  const chosen = select.value;
  select.replaceChildren(...wanted.map(([value, text]) => h("option", { value }, text)));
  if (wanted.some(([value]) => value === chosen)) select.value = chosen;
  else if (chosen) select.dispatchEvent(new Event("change")); // its model is gone
}

/** The list itself: it follows its end unless somebody reads further up. */
function lines(list) {
  return {
    add(found) {
      const follows = list.scrollHeight - list.scrollTop - list.clientHeight < 30;
      list.append(...found.slice(-KEPT).map(line));
      while (list.children.length > KEPT) list.firstChild.remove();
      if (follows) list.scrollTop = list.scrollHeight;
    },
    clear: () => list.replaceChildren(),
  };
}

function line({ gap, at, profile, level, text, fact, about }) {
  if (gap) return h("li.gap", {}, `Lines are missing: ${gap}`);
  const when = new Date(at).toLocaleTimeString("en-GB");
  return h(
    "li",
    { "data-level": level, "data-about": about },
    h("time", { datetime: at }, when),
    h("span.who", {}, profile ?? "daemon"),
    h("span.text", {}, about ? mark(about, fact) : null, text),
  );
}

function mark(about, fact) {
  return h("span.mark", { title: `read as ${fact.replaceAll("_", " ")}` }, about, " ");
}
