// Funnels: steps, conversion by period, and the time to convert.
import { funnelChart } from "../funnel";
import { type Cell, type Picture, type PeopleRequest, type PictureQuery, formatNumber, formatSeconds, formatShare, readObject } from "../picture";
import { seriesChart } from "../series";
import { seriesColor } from "../svg";

interface StepResult {
  name: string;
  custom_name: string | null;
  order: number;
  count: number;
  average_conversion_time: number | null;
  median_conversion_time: number | null;
  converted_people_url: string | null;
  dropped_people_url: string | null;
  breakdown_value?: unknown;
}

interface PeriodsResult {
  data: number[];
  labels: string[];
  breakdown_value?: unknown;
}

interface TimesResult {
  bins: [number, number][];
  average_conversion_time: number | null;
}

const nameValue = (value: unknown) => (Array.isArray(value) ? value.join(", ") : value === undefined || value === null ? "" : String(value));
const nameStep = (step: StepResult) => step.custom_name || step.name;
const listPeople = (title: string, link: string | null): PeopleRequest | undefined => (link ? { title, link } : undefined);

function stepsPicture(groups: StepResult[][]): Picture {
  const names = groups.map((steps) => nameValue(steps[0]?.breakdown_value));
  const first = groups[0] ?? [];
  const steps = first.map((step, order) => ({
    name: nameStep(step),
    counts: groups.map((group) => group[order]?.count ?? 0),
    remark: order > 0 && groups.length === 1 && step.median_conversion_time !== null ? `median ${formatSeconds(step.median_conversion_time)}` : "",
  }));
  const format = formatNumber;
  const summary = groups.slice(0, 6).map((group, index) => {
    const last = group[group.length - 1];
    const prefix = names[index] === "" ? "" : `${names[index]}: `;
    return group.length === 0 ? "" : `${prefix}${format(group[0].count)} began with ${nameStep(group[0])}, ${format(last.count)} reached ${nameStep(last)} (${formatShare(last.count, group[0].count)}).`;
  }).join(" ");
  const findStep = (index: number, order: number, isLost: boolean) => {
    const step = groups[index]?.[order];
    if (!step) return undefined;
    const suffix = names[index] === "" ? "" : ` (${names[index]})`;
    return isLost
      ? listPeople(`Lost before ${nameStep(step)}${suffix}`, step.dropped_people_url)
      : listPeople(`Reached ${nameStep(step)}${suffix}`, step.converted_people_url);
  };
  const rows = groups.flatMap((group, index) => group.map((step, order): Cell[] => [
    ...(groups.length > 1 || names[0] !== "" ? [{ text: names[index] }] : []),
    { text: `${order + 1}. ${nameStep(step)}` },
    { text: format(step.count), people: findStep(index, order, false) },
    { text: formatShare(step.count, group[0].count) },
    { text: order > 0 ? formatShare(step.count, group[order - 1].count) : "–" },
    { text: order > 0 ? format(group[order - 1].count - step.count) : "–", people: order > 0 ? findStep(index, order, true) : undefined },
    { text: formatSeconds(step.median_conversion_time) },
    { text: formatSeconds(step.average_conversion_time) },
  ]));
  const columns = ["Step", "Reached", "Of first", "Of step before", "Lost", "Median time", "Average time"];
  return {
    summary: summary || "No steps.",
    draw: ({ width }) => funnelChart(steps, { width, label: summary, names, format }),
    legend: names.length > 1 ? names.map((name, index) => ({ name, color: seriesColor(index) })) : [],
    table: { columns: groups.length > 1 || names[0] !== "" ? ["Value", ...columns] : columns, rows },
    findPeople: (mark) => findStep(Number(mark.series ?? 0), Number(mark.step ?? 0), mark.lost !== undefined),
  };
}

function periodsPicture(results: PeriodsResult[]): Picture {
  const labels = (results[0]?.labels ?? []).map((label) => label.replace(/^(\d{1,2})-([A-Z][a-z]{2})-\d{4}$/, "$1 $2"));
  const series = results.map((one) => ({ name: nameValue(one.breakdown_value) || "Converted", values: one.data }));
  const format = (value: number) => `${formatNumber(value)} %`;
  const summary = series.slice(0, 6).map(({ name, values }) => `${name}: ${format(Math.min(...values))} to ${format(Math.max(...values))}`).join(", ");
  return {
    summary: labels.length > 0 ? `Conversion by period, ${labels[0]} to ${labels[labels.length - 1]}. ${summary}.` : "No values.",
    draw: (size) => seriesChart({ labels, series }, { ...size, display: "lines", label: summary, format }),
    legend: series.map(({ name }, index) => ({ name, color: seriesColor(index) })),
    table: {
      columns: ["Period", ...series.map(({ name }) => name)],
      rows: labels.map((label, column) => [{ text: label }, ...series.map(({ values }) => ({ text: format(values[column] ?? 0) }))]),
    },
  };
}

function timesPicture(result: TimesResult): Picture {
  const bins = result.bins.slice(0, Math.max(1, result.bins.length - 1));
  const labels = bins.map(([start], index) => {
    const end = result.bins[index + 1]?.[0];
    return end === undefined ? formatSeconds(start) : `${formatSeconds(start)} – ${formatSeconds(end)}`;
  });
  const values = bins.map(([, count]) => count);
  const summary = `${formatNumber(values.reduce((sum, value) => sum + value, 0))} converted, on average in ${formatSeconds(result.average_conversion_time)}.`;
  return {
    summary,
    draw: (size) => seriesChart({ labels, series: [{ name: "Converted", values }] }, { ...size, display: "bars", label: summary, format: formatNumber }),
    legend: [],
    table: { columns: ["Time to convert", "Actors"], rows: labels.map((label, index) => [{ text: label }, { text: formatNumber(values[index]) }]) },
  };
}

export function funnelsPicture(results: unknown, query: PictureQuery): Picture {
  const form = readObject(query, "funnelsFilter").funnelVizType;
  if (form === "time_to_convert") return timesPicture(results as TimesResult);
  if (form === "trends") return periodsPicture(results as PeriodsResult[]);
  const list = results as StepResult[] | StepResult[][];
  const groups = (Array.isArray(list[0]) ? list : [list]) as StepResult[][];
  return stepsPicture(groups.filter((steps) => steps.length > 0));
}
