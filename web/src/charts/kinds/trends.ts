// Trends: values along time, or one total per series.
import { barChart, pieChart } from "../categories";
import { type Cell, type Picture, type PeopleRequest, type PictureQuery, formatNumber, formatTick, readObject } from "../picture";
import { type SeriesDisplay, seriesChart } from "../series";
import { seriesColor } from "../svg";

interface TrendResult {
  label: string;
  order: number;
  breakdown_value?: unknown;
  compare_label?: "current" | "previous";
  aggregated_value?: number;
  count: number;
  data: number[];
  labels?: string[];
  days: string[];
  persons_urls?: { url: string }[] | null;
  filter?: { date_to?: string };
  action?: { custom_name?: string | null; math?: string | null } | null;
}

const DISPLAYS: Record<string, SeriesDisplay> = {
  ActionsLineGraph: "lines", ActionsLineGraphCumulative: "lines", ActionsAreaGraph: "areas",
  ActionsUnstackedBar: "bars", ActionsBar: "stacked", ActionsStackedBar: "stacked",
};

function nameSeries(one: TrendResult): string {
  const name = one.action?.custom_name || one.label;
  return one.compare_label === "previous" ? `${name} (period before)` : name;
}

/** `25-Nov-2026` is shorter without the year, which the range says. */
const shorten = (label: string) => label.replace(/^(\d{1,2})-([A-Z][a-z]{2})-\d{4}$/, "$1 $2");

function totalsPicture(results: TrendResult[], display: string, query: PictureQuery): Picture {
  const categories = results.map((one) => ({ name: nameSeries(one), value: one.aggregated_value ?? 0 }));
  const people = results.map((one): PeopleRequest => ({
    title: nameSeries(one),
    list: "trends",
    body: { query, entity_order: one.order, ...(one.breakdown_value === undefined ? {} : { breakdown_value: one.breakdown_value }) },
  }));
  const label = categories.slice(0, 8).map(({ name, value }) => `${name}: ${formatNumber(value)}`).join(", ");
  const isNumber = display === "BoldNumber";
  const options = { label, format: formatNumber };
  const draw = display === "ActionsTable" || isNumber ? null : ({ width, height }: { width: number; height: number }) =>
    display === "ActionsPie" ? pieChart(categories, { width, height, ...options }) : barChart(categories.slice(0, 30), { width, ...options });
  return {
    summary: label || "No values.",
    draw,
    total: isNumber ? formatNumber(categories[0]?.value ?? 0) : undefined,
    legend: display === "ActionsPie" ? categories.map(({ name }, index) => ({ name, color: seriesColor(index) })) : [],
    table: {
      columns: ["Series", "Value"],
      rows: categories.map(({ name, value }, index): Cell[] => [{ text: name }, { text: formatNumber(value), people: people[index] }]),
    },
    findPeople: (mark) => people[Number(mark.series ?? 0)],
  };
}

export function trendsPicture(results: TrendResult[], query: PictureQuery, now: number): Picture {
  const display = String(readObject(query, "trendsFilter").display ?? "ActionsLineGraph");
  if (results.some((one) => one.aggregated_value !== undefined && one.data?.length !== 0) || results.every((one) => one.aggregated_value !== undefined)) {
    return totalsPicture(results, display, query);
  }
  const labels = (results[0]?.labels ?? results[0]?.days ?? []).map(shorten);
  const series = results.map((one) => ({ name: nameSeries(one), values: one.data, isEarlier: one.compare_label === "previous" }));
  const isLastOpen = new Date(results[0]?.filter?.date_to ?? 0).getTime() > now;
  const sums = series.map(({ name, values }) => `${name}: ${formatNumber(values.reduce((sum, value) => sum + value, 0))} in all`);
  const summary = labels.length === 0 ? "No values." : `${labels[0]} to ${labels[labels.length - 1]}. ${sums.slice(0, 8).join(", ")}.`;
  const findCell = (index: number, column: number): PeopleRequest | undefined => {
    const link = results[index]?.persons_urls?.[column]?.url;
    return link ? { title: `${series[index].name}, ${labels[column]}`, link } : undefined;
  };
  return {
    summary,
    draw: (size) => seriesChart({ labels, series, isLastOpen }, { ...size, display: DISPLAYS[display] ?? "lines", label: summary, format: formatTick }),
    legend: series.map(({ name, isEarlier }, index) => ({ name, color: seriesColor(index), isEarlier })),
    table: {
      columns: ["", ...series.map(({ name }) => name)],
      rows: labels.map((label, column) => [
        { text: label },
        ...series.map(({ values }, index) => ({ text: formatNumber(values[column] ?? 0), people: findCell(index, column) })),
      ]),
    },
    findPeople: (mark) => findCell(Number(mark.series ?? 0), Number(mark.column ?? 0)),
  };
}
