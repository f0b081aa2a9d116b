// The grid of retention: a row per start, a column per distance, darker where more returned.
import { type SvgNode, chartRoot, fitText, svg } from "./svg";

export interface GridRow {
  name: string;
  /** Null for a period that is not part of the range. */
  counts: (number | null)[];
}

export interface GridOptions {
  width: number;
  label: string;
  columns: string[];
}

const ROW = 24;

export function gridChart(rows: GridRow[], { width, label, columns }: GridOptions): SvgNode {
  const names = Math.min(110, width * 0.24);
  const sizes = 46;
  const cell = Math.min(84, (width - names - sizes) / Math.max(1, columns.length));
  const left = names + sizes;
  const header = columns.map((column, index) =>
    svg("text", { x: left + (index + 0.5) * cell, y: 15, "text-anchor": "middle", class: "tick" }, fitText(cell < 52 ? String(index) : column, cell)),
  );
  const lines = rows.map((row, order) => {
    const y = ROW * (order + 1);
    const whole = row.counts[0] ?? 0;
    const cells = row.counts.map((count, index) => {
      if (count === null) return null;
      const rate = whole > 0 ? count / whole : 0;
      const text = cell < 44 ? `${Math.round(100 * rate)}` : `${(100 * rate).toFixed(cell < 58 ? 0 : 1)} %`;
      return svg(
        "g",
        {},
        svg(
          "rect",
          {
            x: left + index * cell + 1, y: y + 1, width: cell - 2, height: ROW - 2, class: "cell",
            "fill-opacity": Math.round((0.06 + 0.94 * Math.min(1, rate)) * 100) / 100, "data-row": order, "data-column": index,
          },
          svg("title", {}, `${row.name}, ${columns[index] ?? index}: ${count} of ${whole}`),
        ),
        cell >= 22 && svg("text", { x: left + (index + 0.5) * cell, y: y + 16, "text-anchor": "middle", class: rate > 0.55 ? "cell-text dark" : "cell-text" }, text),
      );
    });
    return svg(
      "g",
      {},
      svg("text", { x: 0, y: y + 16, class: "name" }, fitText(row.name, names)),
      svg("text", { x: left - 10, y: y + 16, "text-anchor": "end", class: "value" }, String(whole)),
      ...cells,
    );
  });
  return chartRoot({ width, height: ROW * (rows.length + 1) + 2 }, label, ...header, ...lines);
}
