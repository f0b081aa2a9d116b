// Values by category: horizontal bars, and a pie.
import { scaleLinear } from "d3-scale";
import { arc, pie } from "d3-shape";
import { type Size, type SvgNode, chartRoot, fitText, seriesColor, svg } from "./svg";

export interface Category {
  name: string;
  value: number;
}

export interface CategoryOptions {
  width: number;
  label: string;
  format: (value: number) => string;
}

const ROW = 26;

export function barChart(categories: Category[], { width, label, format }: CategoryOptions): SvgNode {
  const names = Math.min(width * 0.36, 190);
  const highest = Math.max(1, ...categories.map(({ value }) => value));
  const values = Math.max(...categories.map(({ value }) => format(value).length), 1) * 7 + 12;
  const scale = scaleLinear().domain([0, highest]).range([0, Math.max(10, width - names - values)]);
  const rows = categories.map(({ name, value }, index) => {
    const y = index * ROW;
    const length = Math.max(1, scale(Math.max(0, value)));
    return svg(
      "g",
      {},
      svg("text", { x: names - 8, y: y + 17, "text-anchor": "end", class: "name" }, fitText(name, names - 8), svg("title", {}, name)),
      svg(
        "rect",
        { x: names, y: y + 4, width: length, height: ROW - 8, fill: seriesColor(0), class: "bar", "data-series": index, "data-column": 0 },
        svg("title", {}, `${name}: ${format(value)}`),
      ),
      svg("text", { x: names + length + 6, y: y + 17, class: "value" }, format(value)),
    );
  });
  return chartRoot({ width, height: Math.max(ROW, categories.length * ROW) }, label, ...rows);
}

export function pieChart(categories: Category[], { width, height, label, format }: CategoryOptions & Size): SvgNode {
  const radius = Math.min(width, height) / 2 - 4;
  const shape = arc<{ startAngle: number; endAngle: number }>().innerRadius(radius * 0.55).outerRadius(radius).padAngle(0.01);
  const total = categories.reduce((sum, { value }) => sum + Math.max(0, value), 0);
  const angles = pie<Category>().sort(null).value(({ value }) => Math.max(0, value))(categories);
  const slices = angles.map((angle, index) => {
    const share = total > 0 ? ` (${((100 * angle.value) / total).toFixed(1)} %)` : "";
    return svg(
      "path",
      { d: shape(angle) ?? "", fill: seriesColor(index), class: "bar", "data-series": index, "data-column": 0 },
      svg("title", {}, `${angle.data.name}: ${format(angle.data.value)}${share}`),
    );
  });
  const center = svg("text", { y: 6, "text-anchor": "middle", class: "total" }, format(total));
  return chartRoot({ width, height }, label, svg("g", { transform: `translate(${width / 2} ${height / 2})` }, ...slices, center));
}
