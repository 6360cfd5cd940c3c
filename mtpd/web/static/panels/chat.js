/** A small chat box to try the model: the reply as it comes, and what it was made with. */

import { h, parts } from "../lib/dom.js";
import { eventsOf } from "../lib/sse.js";

const MAX_TOKENS = 512;

/**
 * @param {HTMLElement} section
 * @param {import("../app.js").Context} ctx
 */
export function mount(section, { api, store, format, toasts }) {
  const { header, body } = parts(section);
  const which = h("select", { "aria-label": "Model to talk to" });
  header.append(h("div.aside", {}, which));
  const talk = h("div.talk", { role: "log", "aria-label": "Conversation", tabindex: "0" });
  const empty = h("p.empty", {}, "Nothing is sent anywhere but to this daemon, and nothing is kept.");
  talk.append(empty);
  const input = h("textarea", { rows: "2", "aria-label": "Message", placeholder: "Ask something" });
  const send = h("button.primary", { type: "submit" }, "Send");
  const stop = h("button", { type: "button", hidden: true }, "Stop");
  const clear = h("button.quiet", { type: "button", hidden: true }, "Clear");
  const form = h("form.say", {}, input, h("div.row", {}, send, stop, clear));
  body.append(talk, form);

  /** What was said, as the model is told it again. */
  let said = [];
  let running = null;

  store.subscribe(["status", "models"], (status, models) => offer(which, status, models));
  store.subscribe(["access"], (access) => {
    const off = access && !access.inference.allowed;
    send.setAttribute("aria-disabled", off ? "true" : "false");
    send.title = off ? access.inference.reason : "";
  });

  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  stop.addEventListener("click", () => running?.abort());
  clear.addEventListener("click", () => {
    said = [];
    talk.replaceChildren(empty);
    clear.hidden = true;
    input.focus();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const text = input.value.trim();
    const refused = store.get("access")?.inference;
    if (refused && !refused.allowed) return toasts.problem({ detail: refused.reason, hint: refused.hint });
    if (!text || running) return undefined;
    input.value = "";
    empty.remove();
    said.push({ role: "user", content: text });
    talk.append(h("div.turn.user", {}, h("p", {}, text)));
    const turn = createTurn(talk);
    running = new AbortController();
    busy(true);
    try {
      const content = await answer(which.value, said, running.signal, turn);
      said.push({ role: "assistant", content });
    } catch (error) {
      said.pop();
      if (error.name === "AbortError") turn.note("Stopped.");
      else turn.fail(error);
    } finally {
      running = null;
      busy(false);
    }
    return undefined;
  });

  function busy(now) {
    send.hidden = now;
    stop.hidden = !now;
    clear.hidden = now;
    talk.setAttribute("aria-busy", String(now));
  }

  async function answer(model, messages, signal, turn) {
    const response = await api.open("/v1/chat/completions", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ model, messages, stream: true, max_tokens: MAX_TOKENS }),
      signal,
    });
    const made = {
      profile: response.headers.get("X-Mtpd-Profile"),
      depth: response.headers.get("X-Mtpd-Depth"),
      why: response.headers.get("X-Mtpd-Why"),
    };
    turn.note(describe(made, null, format), made.why);
    let content = "";
    for await (const { data } of eventsOf(response)) {
      if (!data || data === "[DONE]") continue;
      const part = JSON.parse(data);
      if (part.error) throw new Error(part.error.message);
      const text = part.choices?.[0]?.delta?.content;
      if (text) turn.text((content += text));
      if (part.timings) turn.note(describe(made, part.timings, format), made.why);
    }
    return content;
  }
}

function offer(which, status, models) {
  const names = [
    ...new Set([...(status?.choices ?? []).map((one) => one.subject), ...(models ?? []).map((one) => one.id)]),
  ];
  if (names.join("\n") === [...which.options].map((one) => one.value).join("\n")) return;
  const before = which.value;
  which.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
  if (names.includes(before)) which.value = before;
}

/** @param {HTMLElement} talk */
function createTurn(talk) {
  const reply = h("p", {}, "…");
  const made = h("p.made", {});
  talk.append(h("div.turn.model", {}, reply, made));
  const down = () => {
    talk.scrollTop = talk.scrollHeight;
  };
  down();
  return {
    text(content) {
      reply.textContent = content;
      down();
    },
    note(text, title = "") {
      made.textContent = text;
      made.title = title ?? "";
      down();
    },
    fail(error) {
      reply.replaceChildren(h("span.bad", { role: "alert" }, error.detail ?? error.message));
      made.textContent = error.hint ?? "";
      down();
    },
  };
}

function describe({ profile, depth }, timings, format) {
  const { predicted_per_second: tps, draft_n: drafted, draft_n_accepted: accepted } = timings ?? {};
  return [
    profile,
    depth === null ? "" : `depth ${depth}`,
    format.known(tps) ? format.tps(tps) : "",
    drafted ? `${accepted} of ${drafted} drafts accepted` : "",
  ]
    .filter(Boolean)
    .join(" · ");
}
