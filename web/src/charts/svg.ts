// SVG as plain data. Texts are never markup: `toMarkup` escapes them, `toDom` and the console set them as text nodes.

export interface SvgNode {
  tag: string;
  attributes: Record<string, string | number>;
  children: (SvgNode | string)[];
}

type Child = SvgNode | string | null | false;

export function svg(tag: string, attributes: Record<string, string | number | undefined>, ...children: Child[]): SvgNode {
  const given = Object.entries(attributes).filter((entry): entry is [string, string | number] => entry[1] !== undefined);
  return {
    tag,
    attributes: Object.fromEntries(given.map(([name, value]) => [name, typeof value === "number" ? round(value) : value])),
    children: children.filter((child): child is SvgNode | string => child !== null && child !== false),
  };
}

/** Coordinates with one decimal place keep the document small. */
export function round(value: number): number {
  return Math.round(value * 10) / 10;
}

const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const escapeText = (text: string) => text.replace(/[&<>"]/g, (character) => ESCAPES[character]);

/** The node as SVG text, for a file or a page of the server. */
export function toMarkup(node: SvgNode | string): string {
  if (typeof node === "string") return escapeText(node);
  const attributes = Object.entries(node.attributes).map(([name, value]) => ` ${name}="${escapeText(String(value))}"`);
  return `<${node.tag}${attributes.join("")}>${node.children.map(toMarkup).join("")}</${node.tag}>`;
}

/** The node as an element of `document`. */
export function toDom(node: SvgNode, document: Document): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", node.tag);
  for (const [name, value] of Object.entries(node.attributes)) element.setAttribute(name, String(value));
  for (const child of node.children) element.append(typeof child === "string" ? child : toDom(child, document));
  return element;
}

export interface Size {
  width: number;
  height: number;
}

/** The root of a chart. `label` is its text alternative. */
export function chartRoot(size: Size, label: string, ...children: Child[]): SvgNode {
  const attributes = {
    xmlns: "http://www.w3.org/2000/svg",
    viewBox: `0 0 ${round(size.width)} ${round(size.height)}`,
    width: size.width,
    height: size.height,
    role: "img",
    "aria-label": label,
    class: "chart",
  };
  return svg("svg", attributes, ...children);
}

/** The color of a series: custom properties, which the page defines for both themes. */
export const seriesColor = (index: number) => `var(--series-${(index % 10) + 1})`;

/** About how many pixels a text of the charts is wide. */
export const textWidth = (text: string) => text.length * 6.3;

/** The text, cut to about `width` pixels. */
export function fitText(text: string, width: number): string {
  const most = Math.max(1, Math.floor(width / 6.3));
  return text.length <= most ? text : `${text.slice(0, Math.max(1, most - 1))}…`;
}
