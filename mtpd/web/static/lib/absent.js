/** What stands in a panel as long as nothing is known that it could show, and why. */

import { h } from "./dom.js";

const WAITS = "Waiting for the daemon.";
const REFUSED = "A token is needed to see this.";

/**
 * @param {string} link of the store
 * @param {(() => void) | null} askForToken offers the field for it, where this panel does
 */
export function absent(link, askForToken = null) {
  if (link !== "forbidden") return h("p.empty", {}, WAITS);
  if (!askForToken) return h("p.empty", {}, REFUSED);
  const button = h("button.primary", { type: "button", "data-key": "token" }, "Enter a token");
  button.addEventListener("click", askForToken);
  return [
    h("p.empty", {}, "The daemon answers, and shows what it does only to who has a token."),
    h("p.row", {}, button),
  ];
}
