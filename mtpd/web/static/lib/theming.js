/** The theme: the system's, light or dark; what was chosen is remembered. */

const KEY = "mtpd.theme";
const ORDER = ["system", "light", "dark"];
const listeners = new Set();
const system = matchMedia("(prefers-color-scheme: dark)");

/** @returns {string} system, light or dark */
function chosen() {
  return document.documentElement.dataset.theme ?? "system";
}

/** @param {string} theme system, light or dark */
function choose(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    if (theme === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // Storage is forbidden: the choice holds until the page is left.
  }
  tell();
}

function tell() {
  for (const listener of listeners) listener();
}

system.addEventListener("change", tell);

/**
 * Be told when colours are other ones, as a canvas does not follow by itself.
 * @param {() => void} listener
 */
export function onTheme(listener) {
  listeners.add(listener);
}

/**
 * A colour of the style sheet as the canvas understands it.
 * @param {string} name of a custom property, e.g. "--accent"
 * @returns {string}
 */
export function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/**
 * Let a button go through the themes.
 * @param {HTMLButtonElement} button
 */
export function installToggle(button) {
  const show = () => {
    button.textContent = `Theme: ${chosen()}`;
  };
  button.addEventListener("click", () => {
    choose(ORDER[(ORDER.indexOf(chosen()) + 1) % ORDER.length]);
    show();
  });
  show();
}
