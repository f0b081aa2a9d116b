// Retention, lifecycle, stickiness and paths.
import { type Edge, flowChart, splitStep } from "../flow";
import { gridChart } from "../grid";
import { type Cell, type Picture, type PeopleRequest, type PictureQuery, formatNumber, formatSeconds, formatShare, formatTick, readObject } from "../picture";
import { seriesChart } from "../series";
import { seriesColor } from "../svg";

interface RetentionRow {
  label: string;
  date: string;
  breakdown_value: string | null;
  values: { count: number; label: string }[];
  people_url: string | null;
}

export function retentionPicture(results: RetentionRow[]): Picture {
  const longest = results.reduce((most, { values }) => (values.length > most.length ? values : most), results[0]?.values ?? []);
  const columns = longest.map(({ label }) => label);
  const periods = new Set(results.map(({ date }) => date)).size;
  const rows = results.map((row, order) => ({
    name: `${row.breakdown_value !== null ? `${row.breakdown_value} · ` : ""}${row.date.slice(0, 10)}`,
    // The last columns of later rows are after the range: nothing was counted there.
    counts: row.values.map(({ count }, column) => (count === 0 && column > 0 && (order % periods) + column >= periods ? null : count)),
    people: row.people_url ? ({ title: `Started ${row.date.slice(0, 10)}`, link: row.people_url } as PeopleRequest) : undefined,
  }));
  const started = rows.reduce((sum, { counts }) => sum + (counts[0] ?? 0), 0);
  const summary = `${formatNumber(started)} starts in ${rows.length} periods. ${columns[1] ?? ""}: ${rows.slice(0, 4).map(({ name, counts }) => `${name} ${formatShare(counts[1] ?? 0, counts[0] ?? 0)}`).join(", ")}.`;
  return {
    summary,
    draw: ({ width }) => gridChart(rows, { width, label: summary, columns }),
    legend: [],
    table: {
      columns: ["Started", ...columns],
      rows: rows.map(({ name, counts, people }): Cell[] => [
        { text: name },
        ...counts.map((count, index): Cell =>
          count === null ? { text: "–" } : index === 0 ? { text: formatNumber(count), people } : { text: `${formatNumber(count)} (${formatShare(count, counts[0] ?? 0)})` }),
      ]),
    },
    findPeople: (mark) => rows[Number(mark.row ?? -1)]?.people,
  };
}

interface LinkedSeries {
  label: string;
  status?: string;
  compare_label?: string;
  data: number[];
  labels: string[];
  persons_urls?: { url: string }[] | null;
}

const STATUS_COLORS: Record<string, string> = {
  new: "var(--series-1)", returning: "var(--series-3)", resurrecting: "var(--series-4)", dormant: "var(--series-2)",
};

function linkedPicture(results: LinkedSeries[], names: string[], colors: string[], isStacked: boolean, subject: string): Picture {
  const labels = results[0]?.labels ?? [];
  const series = results.map((one, index) => ({ name: names[index], values: one.data, color: colors[index] }));
  const summary = `${subject} ${series.map(({ name, values }) => `${name}: ${formatNumber(values.reduce((sum, value) => sum + value, 0))}`).join(", ")}.`;
  const findCell = (index: number, column: number): PeopleRequest | undefined => {
    const link = results[index]?.persons_urls?.[column]?.url;
    return link ? { title: `${names[index]}, ${labels[column]}`, link } : undefined;
  };
  return {
    summary,
    draw: (size) => seriesChart({ labels, series }, { ...size, display: isStacked ? "stacked" : "bars", label: summary, format: formatTick }),
    legend: series.map(({ name, color }) => ({ name, color })),
    table: {
      columns: ["", ...names],
      rows: labels.map((label, column) => [
        { text: label },
        ...series.map(({ values }, index) => ({ text: formatNumber(values[column] ?? 0), people: findCell(index, column) })),
      ]),
    },
    findPeople: (mark) => findCell(Number(mark.series ?? 0), Number(mark.column ?? 0)),
  };
}

export function lifecyclePicture(results: LinkedSeries[]): Picture {
  const statuses = results.map(({ status = "" }) => status);
  return linkedPicture(results, statuses, statuses.map((status) => STATUS_COLORS[status] ?? seriesColor(0)), true, "Actors by status.");
}

export function stickinessPicture(results: LinkedSeries[]): Picture {
  const names = results.map(({ label, compare_label }) => (compare_label === "previous" ? `${label} (period before)` : label));
  return linkedPicture(results, names, results.map((_, index) => seriesColor(index)), false, "Actors by number of active intervals.");
}

interface PathEdge extends Edge {
  average_conversion_time: number | null;
}

export function pathsPicture(results: PathEdge[], query: PictureQuery): Picture {
  const nameEdge = (source: string, target: string) => `${splitStep(source).name} → ${splitStep(target).name}`;
  const listEdge = (keys: Record<string, string>, title: string): PeopleRequest => ({
    title,
    list: "path",
    body: { query: { ...query, pathsFilter: { ...readObject(query, "pathsFilter"), ...keys } } },
  });
  const top = results.slice(0, 3).map(({ source, target, value }) => `${nameEdge(source, target)} (${formatNumber(value)})`);
  const summary = results.length === 0 ? "No paths." : `${results.length} passages between steps. Most frequent: ${top.join(", ")}.`;
  return {
    summary,
    draw: results.length === 0 ? null : ({ width }) => flowChart(results, { width, label: summary, format: formatNumber }),
    legend: [],
    table: {
      columns: ["Step", "From", "To", "Passages", "Average time"],
      rows: results.map(({ source, target, value, average_conversion_time }): Cell[] => [
        { text: `${splitStep(source).column + 1} → ${splitStep(target).column + 1}` },
        { text: splitStep(source).name },
        { text: splitStep(target).name },
        { text: formatNumber(value), people: listEdge({ pathStartKey: source, pathEndKey: target }, nameEdge(source, target)) },
        { text: average_conversion_time === null ? "–" : formatSeconds(average_conversion_time / 1000) },
      ]),
    },
    findPeople: ({ source, target, node }) =>
      node ? listEdge({ pathEndKey: node }, splitStep(node).name)
        : source && target ? listEdge({ pathStartKey: source, pathEndKey: target }, nameEdge(source, target)) : undefined,
  };
}
