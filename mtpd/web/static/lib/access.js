/** Tokens, and buttons that know whether they may do what they say. */

import { h } from "./dom.js";

/**
 * Show a dialog that closes with Escape and gives the focus back.
 * @param {string} title
 * @param {...import("./dom.js").Child} children
 * @returns {HTMLDialogElement}
 */
export function dialog(title, ...children) {
  const close = h("button.quiet", { type: "button", "aria-label": "Close" }, "×");
  const box = /** @type {HTMLDialogElement} */ (
    h(
      "dialog",
      { "aria-labelledby": "dialog-title" },
      h("header", {}, h("h2", { id: "dialog-title" }, title), close),
      ...children,
    )
  );
  close.addEventListener("click", () => box.close());
  box.addEventListener("close", () => box.remove());
  document.getElementById("dialogs").append(box);
  box.showModal();
  return box;
}

/**
 * A line of a shell that can be copied.
 * @param {string} text
 */
export function command(text) {
  const copy = h("button.quiet", { type: "button" }, "Copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Mark it and copy"; // plain HTTP from another machine has no clipboard
    }
  });
  return h("div.command", {}, h("code", { tabindex: "0" }, text), copy);
}

/**
 * A word of a shell, quoted where it must be.
 * @param {string} text
 */
export function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/**
 * @param {{api: import("./api.js").Api, store: import("./store.js").Store,
 *   onToken: () => void}} parts
 */
export function createAccess({ api, store, onToken }) {
  /** Why changes are refused, or null where they are not. */
  function refusal() {
    const access = store.get("access");
    if (!access) return { reason: "Nothing is known of this daemon yet.", hint: "" };
    return access.changes.allowed ? null : access.changes;
  }

  function askForToken() {
    const input = h("input", {
      type: "password",
      id: "token",
      autocomplete: "off",
      spellcheck: "false",
      "aria-describedby": "token-help",
    });
    const form = h(
      "form",
      { method: "dialog" },
      h("label", { for: "token" }, "Access token"),
      input,
      h(
        "p.muted",
        { id: "token-help" },
        "It is kept in this page only, and gone when the page is left. A token of the scope read " +
          "shows everything, one of the scope admin may change it.",
      ),
      command("mtpd token add dashboard --scope admin"),
      h(
        "p.row",
        {},
        h("button.primary", { type: "submit" }, "Use it"),
        api.hasToken() ? h("button", { type: "button", id: "forget" }, "Forget the token") : null,
      ),
    );
    const box = dialog("Access", form);
    const use = (secret) => {
      api.setToken(secret);
      box.close();
      onToken();
    };
    form.addEventListener("submit", () => use(input.value));
    form.querySelector("#forget")?.addEventListener("click", () => use(""));
  }

  /**
   * @param {string} line of mtpctl, which does the same as the button
   * @param {{reason: string, hint: string}} refused
   */
  function explain(line, { reason, hint }) {
    const token = h("button", { type: "button" }, "Use a token");
    const box = dialog(
      "Not from this page",
      h("p", {}, reason),
      h("p", {}, "On the daemon's machine, as its user, this does the same:"),
      command(line),
      hint ? h("p.muted", {}, hint) : null,
      h("p.row", {}, token),
    );
    token.addEventListener("click", () => {
      box.close();
      askForToken();
    });
  }

  /**
   * A button that changes something. Where that is refused it is disabled, can still be
   * reached and says what to do instead.
   * @param {{label: string, name: string, line: () => string, run: () => void, key: string,
   *   className?: string, whyNot?: string}} what `name` is the whole of it for a screen
   *   reader; `line` is the command of mtpctl; `whyNot` is why it makes no sense now
   */
  function button({ label, name, line, run, key, className = "", whyNot = "" }) {
    const refused = refusal();
    const off = Boolean(whyNot || refused);
    const node = h(
      "button",
      {
        type: "button",
        class: className,
        "data-key": key,
        "aria-label": name,
        "aria-disabled": off ? "true" : null,
        title: whyNot || (refused ? `${refused.reason} Instead: ${line()}` : null),
      },
      label,
    );
    node.addEventListener("click", () => {
      const now = refusal();
      if (whyNot) return;
      if (now) explain(line(), now);
      else run();
    });
    return node;
  }

  return { askForToken, button, refusal };
}
