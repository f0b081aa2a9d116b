// Saves a chart as an SVG file that looks the same outside of the page.
import { type SvgNode, svg, toMarkup } from "../charts/svg";

const VARIABLE = /var\((--[\w-]+)\)/g;

/** Replaces custom properties by their values in the theme of the page. */
function createResolver(chart: HTMLElement): (text: string) => string {
  const values = new Map<string, string>();
  const resolve = (name: string): string => {
    if (name === "--sans") return getComputedStyle(chart).getPropertyValue(name).trim();
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    chart.append(probe);
    const { color } = getComputedStyle(probe);
    probe.remove();
    return color;
  };
  return (text) => text.replace(VARIABLE, (_, name: string) => {
    if (!values.has(name)) values.set(name, resolve(name));
    return values.get(name)!;
  });
}

/** The rules of the page for charts. */
function readRules(): string {
  const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]);
  const ofCharts = rules.filter((rule) => rule instanceof CSSStyleRule && rule.selectorText.startsWith(".chart") && !rule.selectorText.startsWith(".chart-"));
  return ofCharts.map(({ cssText }) => cssText).join("\n");
}

/** Texts of the chart are kept; only attributes have custom properties. */
function resolveAttributes(node: SvgNode, resolve: (text: string) => string): SvgNode {
  const attributes = Object.entries(node.attributes).map(([name, value]): [string, string | number] => [name, typeof value === "string" && name !== "aria-label" ? resolve(value) : value]);
  const children = node.children.map((child) => (typeof child === "string" ? child : resolveAttributes(child, resolve)));
  return { tag: node.tag, attributes: Object.fromEntries(attributes), children };
}

/** The chart as the text of an SVG file. */
export function formatFile(drawing: SvgNode, chart: HTMLElement): string {
  const resolve = createResolver(chart);
  const rules = resolve(`${readRules()}\n.chart { background: var(--panel); }`);
  const file = resolveAttributes(drawing, resolve);
  return toMarkup({ ...file, children: [svg("style", {}, rules), ...file.children] });
}

export function saveDrawing(drawing: SvgNode, chart: HTMLElement, title: string): void {
  const link = document.createElement("a");
  const name = title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 100);
  link.href = URL.createObjectURL(new Blob([formatFile(drawing, chart)], { type: "image/svg+xml" }));
  link.download = `${name || "chart"}.svg`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
