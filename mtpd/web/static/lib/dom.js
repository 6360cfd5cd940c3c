/** Building the document: text is always text, so nothing that an engine prints becomes markup. */

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * An element.
 * @param {string} tag may name classes: "p.muted.small"
 * @param {Record<string, any>} [attributes] "on…" listens, true and false set and leave out
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const node = document.createElement(name);
  if (classes.length) node.className = classes.join(" ");
  assign(node, attributes);
  node.append(...nodes(children));
  return node;
}

/**
 * An element of SVG.
 * @param {string} name
 * @param {Record<string, any>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {SVGElement}
 */
export function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  assign(node, attributes);
  node.append(...nodes(children));
  return node;
}

function assign(node, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(key, String(value));
    }
  }
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

/**
 * The parts of a panel.
 * @param {HTMLElement} section of index.html
 * @returns {{header: HTMLElement, body: HTMLElement}}
 */
export function parts(section) {
  return { header: section.querySelector("header"), body: section.querySelector(".body") };
}

/**
 * Draw a part of the page, but only when what it shows has changed, so that nobody loses their
 * place: the focus and what was opened stay where elements have the same `data-key`.
 * @param {HTMLElement} container
 * @returns {(shown: any, build: () => Child | Child[]) => void} `shown` is all that `build` uses
 */
export function drawn(container) {
  let before;
  return (shown, build) => {
    const now = JSON.stringify(shown);
    if (now === before) return;
    before = now;
    const focused = keyOf(document.activeElement, container);
    const open = [...container.querySelectorAll("details[data-key][open]")].map(
      (node) => node.dataset.key,
    );
    container.replaceChildren(...nodes([build()]));
    for (const key of open) find(container, key)?.setAttribute("open", "");
    if (focused) find(container, focused)?.focus({ preventScroll: true });
  };
}

function keyOf(node, container) {
  return node && container.contains(node) ? node.closest("[data-key]")?.dataset.key : undefined;
}

function find(container, key) {
  return container.querySelector(`[data-key="${CSS.escape(key)}"]`);
}
