/** Plots over time that move. */

import uPlot from "./vendor/uplot.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { useStore } from "./store.js";
import { colour, theme } from "./theme.js";

/** @typedef {{label: string, colour: string, isFilled?: boolean}} Line */
/** @typedef {(number | null)[]} Values */

const HEIGHT = 148;
const FONT = "11px system-ui, sans-serif";

/** A colour that lets the grid through. @param {string} rgb */
const faint = (rgb) => rgb.replace(/^rgb\((.*)\)$/, "rgba($1, 0.12)");

/** @param {Line[]} lines @param {number} span @param {(value: number) => string} write @param {(at: number | null) => void} point @param {number} width */
function options(lines, span, write, point, width) {
  const [grid, text] = [colour("line"), colour("dim")];
  const axis = { stroke: text, font: FONT, grid: { stroke: grid, width: 1 }, ticks: { show: false } };
  /** @type {import("./vendor/uplot.js").default.Options} */
  const made = {
    width,
    height: HEIGHT,
    padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, sync: { key: "overview" }, points: { size: 6 } },
    scales: {
      x: { range: (_, __, max) => [(max ?? Date.now() / 1000) - span, max ?? Date.now() / 1000] },
      y: { range: (_, __, max) => [0, Math.max(max * 1.1, 1)] },
    },
    axes: [
      { ...axis, size: 24, space: 72, values: "{HH}:{mm}", grid: { show: false } },
      { ...axis, size: 52, space: 32, values: (_, ticks) => ticks.map((tick) => write(tick)) },
    ],
    series: [
      {},
      ...lines.map(({ label, colour: name, isFilled }) => {
        const stroke = colour(name);
        return { label, stroke, width: 1.5, ...(isFilled && { fill: faint(stroke) }), points: { show: false }, spanGaps: false };
      }),
    ],
    hooks: { setCursor: [(plot) => point(plot.cursor.idx ?? null)] },
  };
  return made;
}

/**
 * Lines over the last `span` seconds. The heading tells the values under the cursor, else the latest.
 * @param {{title: string, span: number, times: number[], lines: Line[], values: Values[], write: (value: number) => string}} props
 */
export function Plot({ title, span, times, lines, values, write }) {
  const shown = useStore(theme);
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {uPlot | null} */ (null));
  const [pointed, setPointed] = useState(/** @type {number | null} */ (null));
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const data = /** @type {any} */ ([times, ...values]);
    const made = new uPlot(options(lines, span, write, setPointed, element.clientWidth), data, element);
    plot.current = made;
    const resized = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    resized.observe(element);
    return () => {
      resized.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shown, title, span]);
  useEffect(() => plot.current?.setData(/** @type {any} */ ([times, ...values])), [times, values]);
  const index = pointed !== null && pointed < times.length ? pointed : times.length - 1;
  const at = times[index];
  return html`<figure class="plot">
    <figcaption><strong>${title}</strong>
      ${lines.map(({ label, colour: name }, line) => {
        const value = values[line]?.[index];
        return html`<span class="key"><i style=${{ background: `var(--${name})` }}></i>${label}
          <b>${value === null || value === undefined ? "–" : write(value)}</b></span>`;
      })}
      <span class="dim when">${pointed !== null && at ? new Date(at * 1000).toLocaleTimeString(navigator.language, { hour12: false }) : ""}</span>
    </figcaption>
    <div ref=${place}></div>
  </figure>`;
}
