// Paths as a Sankey diagram: a column per step, a ribbon per edge, as thick as its value.
import { linkHorizontal } from "d3-shape";
import { type SvgNode, chartRoot, fitText, seriesColor, svg } from "./svg";

export interface Edge {
  source: string;
  target: string;
  value: number;
}

export interface FlowOptions {
  width: number;
  label: string;
  format: (value: number) => string;
}

interface FlowNode {
  key: string;
  column: number;
  name: string;
  value: number;
  y: number;
  outgoing: number;
  incoming: number;
}

const NODE_WIDTH = 10;
const GAP = 18;
const COLUMN_MIN = 118;

/** `2_checkout` is the item `checkout` at step 2. */
export function splitStep(key: string): { column: number; name: string } {
  const at = key.indexOf("_");
  return { column: Math.max(0, Number(key.slice(0, at)) - 1) || 0, name: key.slice(at + 1) };
}

function collectNodes(edges: Edge[]): FlowNode[] {
  const nodes = new Map<string, FlowNode & { sent: number; received: number }>();
  const add = (key: string, sent: number, received: number) => {
    const node = nodes.get(key) ?? { key, ...splitStep(key), value: 0, y: 0, outgoing: 0, incoming: 0, sent: 0, received: 0 };
    node.sent += sent;
    node.received += received;
    node.value = Math.max(node.sent, node.received);
    nodes.set(key, node);
  };
  for (const { source, target, value } of edges) {
    add(source, value, 0);
    add(target, 0, value);
  }
  return [...nodes.values()];
}

/** Places the nodes of each column below each other, the largest first, and returns the height of the diagram. */
function placeNodes(nodes: FlowNode[], unit: number): number {
  let bottom = 0;
  for (const column of new Set(nodes.map((node) => node.column))) {
    let y = 6;
    const members = nodes.filter((node) => node.column === column).sort((a, b) => b.value - a.value);
    for (const node of members) {
      node.y = y;
      y += Math.max(2, node.value * unit) + GAP;
    }
    bottom = Math.max(bottom, y);
  }
  return bottom;
}

export function flowChart(edges: Edge[], { width, label, format }: FlowOptions): SvgNode {
  const nodes = collectNodes(edges);
  const byKey = new Map(nodes.map((node) => [node.key, node]));
  const columns = Math.max(1, ...nodes.map(({ column }) => column + 1));
  const total = Math.max(1, ...[...new Set(nodes.map(({ column }) => column))].map((column) =>
    nodes.filter((node) => node.column === column).reduce((sum, { value }) => sum + value, 0)));
  const unit = 220 / total;
  const height = placeNodes(nodes, unit);
  const drawn = Math.max(width, columns * COLUMN_MIN);
  const step = (drawn - NODE_WIDTH - 96) / Math.max(1, columns - 1);
  const x = (node: FlowNode) => node.column * step;
  const horizontal = linkHorizontal<unknown, [number, number]>();
  const ribbons = [...edges].sort((a, b) => b.value - a.value).map((edge) => {
    const [source, target] = [byKey.get(edge.source)!, byKey.get(edge.target)!];
    const thickness = Math.max(1, edge.value * unit);
    const start: [number, number] = [x(source) + NODE_WIDTH, source.y + source.outgoing + thickness / 2];
    const end: [number, number] = [x(target), target.y + target.incoming + thickness / 2];
    source.outgoing += thickness;
    target.incoming += thickness;
    return svg(
      "path",
      {
        d: horizontal({ source: start, target: end }) ?? "", fill: "none", stroke: seriesColor(0), "stroke-width": thickness,
        class: "ribbon", "data-source": edge.source, "data-target": edge.target,
      },
      svg("title", {}, `${source.name} → ${target.name}: ${format(edge.value)}`),
    );
  });
  const boxes = nodes.map((node) => {
    const tall = Math.max(2, node.value * unit);
    return svg(
      "g",
      {},
      svg("rect", { x: x(node), y: node.y, width: NODE_WIDTH, height: tall, class: "node", "data-node": node.key }, svg("title", {}, `${node.name}: ${format(node.value)}`)),
      svg("text", { x: x(node) + NODE_WIDTH + 4, y: node.y + Math.min(tall / 2 + 4, 12), class: "name" }, fitText(node.name, Math.min(step, 96) - 18)),
      svg("text", { x: x(node) + NODE_WIDTH + 4, y: node.y + Math.min(tall / 2 + 4, 12) + 12, class: "tick" }, format(node.value)),
    );
  });
  return chartRoot({ width: drawn, height: height + 8 }, label, svg("g", {}, ...ribbons), svg("g", {}, ...boxes));
}
