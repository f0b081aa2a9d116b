// The steps of a funnel, one below the other: who reached each of them, and who was lost before it.
import { type SvgNode, chartRoot, fitText, seriesColor, svg } from "./svg";

export interface FunnelStepData {
  name: string;
  /** The number of actors of each breakdown value, or one number. */
  counts: number[];
  /** A short remark, such as the median time since the step before. */
  remark: string;
}

export interface FunnelOptions {
  width: number;
  label: string;
  /** The breakdown values; one empty name without breakdown. */
  names: string[];
  format: (value: number) => string;
}

const TITLE = 22;
const GAP = 14;

const percent = (part: number, whole: number) => (whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : "0 %");

export function funnelChart(steps: FunnelStepData[], { width, label, names, format }: FunnelOptions): SvgNode {
  const bar = names.length > 1 ? 16 : 26;
  const stepHeight = TITLE + names.length * (bar + 2) + GAP;
  const labels = 118;
  const full = Math.max(40, width - labels);
  const highest = Math.max(1, ...(steps[0]?.counts ?? []));
  const groups = steps.map((step, order) => {
    const y = order * stepHeight;
    const remarks = width > 480 && step.remark !== "";
    const rows = step.counts.flatMap((count, index) => {
      const top = y + TITLE + index * (bar + 2);
      const before = order > 0 ? (steps[order - 1].counts[index] ?? 0) : count;
      const first = steps[0].counts[index] ?? 0;
      const name = names[index] === "" ? "" : `${names[index]}: `;
      const hint = `${name}${format(count)} of ${format(first)} (${percent(count, first)}); ${percent(count, before)} of the step before`;
      return [
        order > 0 && svg(
          "rect",
          { x: 0, y: top, width: (full * before) / highest, height: bar, class: "lost", "data-step": order, "data-series": index, "data-lost": 1 },
          svg("title", {}, `${name}${format(before - count)} were lost before ${step.name}`),
        ),
        svg(
          "rect",
          {
            x: 0, y: top, width: Math.max(1, (full * count) / highest), height: bar, class: "bar",
            fill: seriesColor(names.length > 1 ? index : 0), "data-step": order, "data-series": index,
          },
          svg("title", {}, hint),
        ),
        svg("text", { x: full + 8, y: top + bar / 2 + 4, class: "value" }, `${format(count)} · ${percent(count, first)}`),
      ].filter((node): node is SvgNode => node !== false);
    });
    return svg(
      "g",
      {},
      svg("text", { x: 0, y: y + 15, class: "step" }, fitText(`${order + 1}  ${step.name}`, remarks ? full - 150 : full), svg("title", {}, step.name)),
      remarks && svg("text", { x: full, y: y + 15, "text-anchor": "end", class: "tick" }, step.remark),
      ...rows,
    );
  });
  return chartRoot({ width, height: Math.max(40, steps.length * stepHeight - GAP) }, label, ...groups);
}
