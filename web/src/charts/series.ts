// Values along an axis of times or categories: lines, areas, bars, stacked bars.
import { area, line, stack, stackOffsetDiverging } from "d3-shape";
import { positionLabels, valueAxis, type Frame } from "./axes";
import { type Size, type SvgNode, chartRoot, seriesColor, svg } from "./svg";

export interface NamedValues {
  name: string;
  values: number[];
  /** Of the period before, in a comparison. */
  isEarlier?: boolean;
  color?: string;
}

export interface SeriesData {
  labels: string[];
  series: NamedValues[];
  /** Whether the last label is a period that has not ended. */
  isLastOpen?: boolean;
}

export type SeriesDisplay = "lines" | "areas" | "bars" | "stacked";

export interface SeriesOptions extends Size {
  display: SeriesDisplay;
  /** The text alternative. */
  label: string;
  format: (value: number) => string;
}

const MAX_MARKERS = 1500;

/** The bounds of each value: from zero, or from the values below it in a stack. */
function stackValues(data: SeriesData): [number, number][][] {
  const rows = data.labels.map((_, column) => data.series.map((one) => one.values[column] ?? 0));
  const keys = data.series.map((_, index) => index);
  const stacked = stack<number[], number>().keys(keys).value((row, key) => row[key]).offset(stackOffsetDiverging)(rows);
  return stacked.map((one) => one.map(([low, high]) => [low, high]));
}

function colorOf(one: NamedValues, index: number): string {
  return one.color ?? seriesColor(index);
}

/** A transparent column per label: shows all values on hover, and says where a click was. */
function hoverColumns(data: SeriesData, positions: number[], frame: Frame, format: (value: number) => string): SvgNode {
  const width = (frame.right - frame.left) / Math.max(1, data.labels.length);
  const columns = data.labels.map((label, column) => {
    const values = data.series.map((one) => `${one.name}: ${format(one.values[column] ?? 0)}`);
    const x = Math.max(frame.left, positions[column] - width / 2);
    return svg(
      "g",
      { class: "column" },
      svg("line", { x1: positions[column], x2: positions[column], y1: frame.top, y2: frame.bottom, class: "guide" }),
      svg(
        "rect",
        { x, y: frame.top, width, height: frame.bottom - frame.top, class: "hit", "data-column": column },
        svg("title", {}, [label, ...values].join("\n")),
      ),
    );
  });
  return svg("g", {}, ...columns);
}

function drawLines(data: SeriesData, positions: number[], scale: (value: number) => number, display: SeriesDisplay): SvgNode[] {
  const zero = scale(0);
  const isMarked = data.series.length * data.labels.length <= MAX_MARKERS;
  return data.series.flatMap((one, index) => {
    const color = colorOf(one, index);
    const points = data.labels.map((_, column): [number, number] => [positions[column], scale(one.values[column] ?? 0)]);
    const closed = data.isLastOpen && points.length > 1 ? points.slice(0, -1) : points;
    const below = area<[number, number]>().x(([x]) => x).y1(([, y]) => y).y0(zero)(points) ?? "";
    const radius = points.length > 60 ? 1.5 : 2.5;
    const markers = points.map(([cx, cy], column) =>
      svg("circle", { cx, cy, r: radius, fill: color, "data-series": index, "data-column": column, class: "marker" }),
    );
    return [
      display === "areas" && svg("path", { d: below, fill: color, class: "area" }),
      svg("path", { d: line()(closed) ?? "", stroke: color, fill: "none", class: one.isEarlier ? "line earlier" : "line" }),
      closed !== points && svg("path", { d: line()(points.slice(-2)) ?? "", stroke: color, fill: "none", class: "line open" }),
      isMarked && svg("g", {}, ...markers),
    ].filter((node): node is SvgNode => node !== false);
  });
}

function drawBars(data: SeriesData, positions: number[], scale: (value: number) => number, step: number, bounds: [number, number][][] | null): SvgNode[] {
  const gap = step > 8 ? Math.min(step * 0.25, 24) : step * 0.1;
  const group = Math.min(step - gap, 90);
  const width = bounds ? group : group / Math.max(1, data.series.length);
  return data.series.flatMap((one, index) =>
    data.labels.map((label, column) => {
      const [low, high] = bounds?.[index][column] ?? [0, one.values[column] ?? 0];
      const x = positions[column] - group / 2 + (bounds ? 0 : index * width);
      const [top, bottom] = [Math.min(scale(low), scale(high)), Math.max(scale(low), scale(high))];
      return svg(
        "rect",
        {
          x, y: top, width: Math.max(1, width - (bounds ? 0 : 1)), height: Math.max(0, bottom - top), fill: colorOf(one, index),
          class: one.isEarlier ? "bar earlier" : "bar", "data-series": index, "data-column": column,
        },
        svg("title", {}, `${label}\n${one.name}: ${one.values[column] ?? 0}`),
      );
    }),
  );
}

export function seriesChart(data: SeriesData, options: SeriesOptions): SvgNode {
  const { display, format, label } = options;
  const bounds = display === "stacked" ? stackValues(data) : null;
  const all = bounds ? bounds.flat(2) : data.series.flatMap((one) => one.values);
  const axis = valueAxis(options, Math.min(0, ...all), Math.max(0, ...all), format);
  const { frame, scale } = axis;
  const isBars = display === "bars" || display === "stacked";
  const count = data.labels.length;
  const step = (frame.right - frame.left) / Math.max(1, isBars ? count : count - 1);
  const first = isBars || count === 1 ? frame.left + step / 2 : frame.left;
  const positions = data.labels.map((_, column) => first + column * step);
  const marks = isBars ? drawBars(data, positions, scale, step, bounds) : drawLines(data, positions, scale, display);
  const hover = hoverColumns(data, positions, frame, format);
  return chartRoot(
    options,
    label,
    axis.lines,
    positionLabels(data.labels, positions, frame),
    !isBars && hover,
    svg("g", { class: isBars ? "marks" : "marks above" }, ...marks),
  );
}
