// Values with their intervals, one row each, on a common horizontal axis.
import { scaleLinear } from "d3-scale";
import { type SvgNode, chartRoot, fitText, svg, textWidth } from "./svg";

export interface IntervalRow {
  name: string;
  value: number;
  interval: [number, number] | null;
  color: string;
}

const ROW = 34;
const AXIS = 24;

export function intervalChart(rows: IntervalRow[], { width, label, format }: { width: number; label: string; format: (value: number) => string }): SvgNode {
  const ends = rows.flatMap(({ value, interval }) => [value, ...(interval ?? [])]);
  const names = Math.min(160, Math.max(...rows.map(({ name }) => textWidth(name)), 40));
  const frame = { left: names + 12, right: width - 24, bottom: rows.length * ROW + 6 };
  const lowest = Math.min(...ends);
  const highest = Math.max(...ends);
  const scale = scaleLinear().domain(lowest === highest ? [lowest - 1, highest + 1] : [lowest, highest]).nice(5).range([frame.left, frame.right]);
  const ticks = scale.ticks(Math.max(2, Math.floor((frame.right - frame.left) / 90)));
  const grid = ticks.flatMap((tick) => [
    svg("line", { x1: scale(tick), x2: scale(tick), y1: 2, y2: frame.bottom, class: "grid" }),
    svg("text", { x: scale(tick), y: frame.bottom + 16, "text-anchor": "middle", class: "tick" }, format(tick)),
  ]);
  const marks = rows.flatMap(({ name, value, interval, color }, order) => {
    const y = order * ROW + ROW / 2 + 2;
    const text = interval ? `${name}: ${format(value)}, ${format(interval[0])} to ${format(interval[1])}` : `${name}: ${format(value)}`;
    return [
      svg("text", { x: names, y: y + 4, "text-anchor": "end", class: "tick" }, fitText(name, names)),
      interval && svg("line", { x1: scale(interval[0]), x2: scale(interval[1]), y1: y, y2: y, stroke: color, "stroke-width": 6, "stroke-linecap": "round", opacity: 0.45 }, svg("title", {}, text)),
      svg("circle", { cx: scale(value), cy: y, r: 5, fill: color }, svg("title", {}, text)),
    ];
  });
  return chartRoot({ width, height: frame.bottom + AXIS }, label, svg("g", {}, ...grid), ...marks);
}
