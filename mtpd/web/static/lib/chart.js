/** uPlot in the page's colours: it follows the theme and the width, and says what it shows. */

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { h } from "./dom.js";
import { colour, onTheme } from "./theming.js";

export { uPlot };

const FONT = "12px system-ui, sans-serif";

/**
 * A chart that stays as wide as its container.
 * @param {HTMLElement} container
 * @param {{height: number, label: string, options: () => object, data: any[]}} what `options`
 *   are uPlot's, without a size; asked again when the theme changes, so that colours by
 *   `colour(…)` are right
 * @returns {{show: (data: any[], label?: string) => void,
 *   redraw: (data: any[], label?: string) => void}} `redraw` asks for the options anew; a chart
 *   stays as long as the page, so one that is to show something else is redrawn, not replaced
 */
export function chart(container, { height, label, options, data }) {
  const holder = h("div.chart", { role: "img", "aria-label": label });
  container.append(holder);
  let shown = data;
  let plot = null;

  function make() {
    plot?.destroy();
    const width = holder.clientWidth || 300;
    plot = new uPlot({ width, height, ...options() }, shown, holder);
  }

  new ResizeObserver(() => {
    if (plot && holder.clientWidth && holder.clientWidth !== plot.width) {
      plot.setSize({ width: holder.clientWidth, height });
    }
  }).observe(holder);
  function take(next, says = label) {
    shown = next;
    holder.setAttribute("aria-label", says);
  }

  onTheme(make);
  make();
  return {
    show(next, says) {
      take(next, says);
      plot.setData(next);
    },
    redraw(next, says) {
      take(next, says);
      make();
    },
  };
}

/**
 * An axis in the colours of the page.
 * @param {object} [more] of uPlot's own options
 */
export function axis(more = {}) {
  const line = colour("--line");
  return {
    stroke: colour("--muted"),
    font: FONT,
    labelFont: FONT,
    labelSize: 20,
    grid: { stroke: line, width: 1 },
    ticks: { stroke: line, width: 1, size: 4 },
    ...more,
  };
}
