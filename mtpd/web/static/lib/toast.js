/** Short messages at the edge of the page; a screen reader says them. */

import { h } from "./dom.js";

const SHOWN_MS = 6000;
const KEPT = 4;

/**
 * @param {HTMLElement} region
 * @returns {{say: (text: string) => void, problem: (error: Error) => void}} problems stay
 *   until they are closed
 */
export function createToasts(region) {
  function show(tone, role, ...children) {
    const close = h("button.quiet", { type: "button", "aria-label": "Close" }, "×");
    const toast = h("div.toast", { role, "data-tone": tone }, h("div", {}, ...children), close);
    close.addEventListener("click", () => toast.remove());
    region.append(toast);
    while (region.children.length > KEPT) region.firstChild.remove();
    return toast;
  }

  return {
    say(text) {
      const toast = show("plain", "status", text);
      setTimeout(() => toast.remove(), SHOWN_MS);
    },
    problem(error) {
      const { title, detail, hint } = error;
      show(
        "bad",
        "alert",
        title ? h("strong", {}, title) : null,
        h("p", {}, detail ?? String(error)),
        hint ? h("p.muted", {}, hint) : null,
      );
    },
  };
}
