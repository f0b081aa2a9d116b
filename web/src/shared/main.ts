// The script of shared pages: draws a chart over each table, from the data in the page. A page is complete without it.
import { buildPicture } from "../charts/kinds";
import type { Picture, PictureQuery } from "../charts/picture";
import { type SvgNode, toDom } from "../charts/svg";
import { saveDrawing } from "./save";

const HEIGHT = 280;
const LEGEND_MAX = 24;

function createElement<K extends keyof HTMLElementTagNameMap>(tag: K, className: string, ...children: (Node | string)[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (className !== "") element.className = className;
  element.append(...children);
  return element;
}

function readPicture(id: string): Picture | null {
  const text = document.getElementById(id)?.textContent;
  if (!text) return null;
  const { query, result } = JSON.parse(text) as { query: PictureQuery; result: unknown };
  return buildPicture(query, result);
}

function createLegend({ legend }: Picture): HTMLUListElement {
  const entries = legend.slice(0, LEGEND_MAX).map(({ name, color, isEarlier }) => {
    const swatch = createElement("span", isEarlier ? "swatch earlier" : "swatch");
    swatch.style.background = color;
    return createElement("li", "", swatch, name);
  });
  if (legend.length > LEGEND_MAX) entries.push(createElement("li", "", `and ${legend.length - LEGEND_MAX} more`));
  return createElement("ul", "legend", ...entries);
}

/** Draws the chart in the width of its place, again whenever that changes, and returns what was drawn last. */
function drawChart(place: HTMLElement, draw: NonNullable<Picture["draw"]>): () => SvgNode | null {
  let drawing: SvgNode | null = null;
  let drawnWidth = 0;
  const redraw = () => {
    const width = place.clientWidth;
    if (width === 0 || width === drawnWidth) return;
    drawnWidth = width;
    drawing = draw({ width, height: HEIGHT });
    place.replaceChildren(toDom(drawing, document));
    const isScrolled = Number(drawing.attributes.width) > width;
    if (isScrolled) place.tabIndex = 0;
    else place.removeAttribute("tabindex");
  };
  redraw();
  new ResizeObserver(redraw).observe(place);
  return () => drawing;
}

function showPicture(place: HTMLElement): void {
  const section = place.closest("section");
  const picture = readPicture(place.dataset.chart ?? "");
  if (!section || !picture) return;
  if (picture.total !== undefined) {
    const name = picture.table.rows[0]?.[0].text ?? "";
    place.append(createElement("p", "total", createElement("strong", "", picture.total), " ", createElement("span", "", name)));
    place.hidden = false;
    return;
  }
  if (!picture.draw) return;
  const chart = createElement("div", "chart-place");
  chart.setAttribute("role", "region");
  chart.setAttribute("aria-label", "Chart");
  place.append(chart);
  if (picture.legend.length > 1) place.append(createLegend(picture));
  place.hidden = false;
  const readDrawing = drawChart(chart, picture.draw);
  const button = createElement("button", "", "Save as SVG");
  button.type = "button";
  button.addEventListener("click", () => {
    const drawing = readDrawing();
    if (drawing) saveDrawing(drawing, chart, section.querySelector("h2")?.textContent ?? document.title);
  });
  section.querySelector(".source")?.append(" ", button);
}

/** Draws each chart in a task of its own, after the tables were painted. */
function showPictures([place, ...others]: HTMLElement[]): void {
  if (!place) return;
  try {
    showPicture(place);
  } catch (failure) {
    // The table is there: a chart that cannot be drawn is left out.
    console.warn(failure);
  }
  setTimeout(showPictures, 0, others);
}

requestAnimationFrame(() => setTimeout(showPictures, 0, [...document.querySelectorAll<HTMLElement>("[data-chart]")]));
