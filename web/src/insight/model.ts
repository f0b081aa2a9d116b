// Queries as the builder edits them: the query node itself, so that fields without an editor are kept.
import type { Insight, JsonObject, PropertyFilter, QueryNode } from "../api/types";

export const KINDS: [string, string][] = [
  ["TrendsQuery", "Trend"], ["FunnelsQuery", "Funnel"], ["RetentionQuery", "Retention"], ["LifecycleQuery", "Lifecycle"],
  ["StickinessQuery", "Stickiness"], ["PathsQuery", "Paths"],
];

export const nameKind = (kind: string) => KINDS.find(([one]) => one === kind)?.[1] ?? kind.replace(/Query$/, "");

export interface SeriesNode {
  kind: string;
  event?: string | null;
  id?: number;
  name?: string | null;
  custom_name?: string | null;
  math?: string | null;
  math_property?: string | null;
  properties?: PropertyFilter[];
}

/** Unwraps `InsightVizNode` and the like. */
export function unwrap(query: QueryNode | null): QueryNode | null {
  let node = query;
  for (let level = 0; node && level < 8 && typeof node.source === "object" && node.source !== null && !KINDS.some(([kind]) => kind === node?.kind); level += 1) {
    node = node.source as QueryNode;
  }
  return node;
}

export const wrap = (query: QueryNode) => ({ kind: "InsightVizNode", source: query });

const LEGACY_KINDS: Record<string, string> = {
  TRENDS: "TrendsQuery", FUNNELS: "FunnelsQuery", RETENTION: "RetentionQuery", LIFECYCLE: "LifecycleQuery", STICKINESS: "StickinessQuery", PATHS: "PathsQuery",
};

/** The query that decides how the result of an insight is drawn, also of one that was stored with `filters`. */
export function queryOfInsight(insight: Insight): QueryNode | null {
  const node = unwrap(insight.query);
  if (node) return node;
  const kind = LEGACY_KINDS[String(insight.filters?.insight ?? "TRENDS")];
  if (!kind || Object.keys(insight.filters ?? {}).length === 0) return null;
  return { kind, trendsFilter: { display: insight.filters.display ?? null }, funnelsFilter: { funnelVizType: insight.filters.funnel_viz_type ?? null } };
}

export const nameInsight = (insight: Insight) => insight.name || insight.derived_name || `Insight ${insight.short_id}`;

export const newSeries = (event: string | null = null): SeriesNode => ({ kind: "EventsNode", event, ...(event ? { name: event } : {}) });

export function readSeries(query: QueryNode): SeriesNode[] {
  return Array.isArray(query.series) ? (query.series as unknown as SeriesNode[]) : [];
}

export function readPart(query: QueryNode, name: string): JsonObject {
  const value = query[name];
  return typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
}

export function withPart(query: QueryNode, name: string, changes: JsonObject): QueryNode {
  const part = { ...readPart(query, name), ...changes };
  for (const [field, value] of Object.entries(part)) if (value === null || value === "") delete part[field];
  return { ...query, [name]: part };
}

/** Property filters as a list, or null where they have a form that the builder does not edit. */
export function readFilters(value: unknown): PropertyFilter[] | null {
  if (value === undefined || value === null || value === "") return [];
  if (!Array.isArray(value)) return null;
  return value.every((one) => typeof one === "object" && one !== null && "key" in one) ? (value as PropertyFilter[]) : null;
}

/** A query to begin with. Events, range and filters of the query before are kept. */
export function startQuery(kind: string, before: QueryNode | null): QueryNode {
  const series = before && readSeries(before).length > 0 ? readSeries(before) : [newSeries()];
  const plain = series.map(({ math: _, math_property: __, ...one }) => one) as unknown as QueryNode[];
  const common: JsonObject = {};
  if (before?.properties) common.properties = before.properties;
  if (before?.filterTestAccounts) common.filterTestAccounts = before.filterTestAccounts;
  common.dateRange = before?.dateRange ?? { date_from: "-30d" };
  const first = { id: series[0].event ?? null, type: "events" };
  switch (kind) {
    case "RetentionQuery": return { kind, ...common, retentionFilter: { period: "Week", totalIntervals: 8, targetEntity: first, returningEntity: first } };
    case "PathsQuery": return { kind, ...common, pathsFilter: { includeEventTypes: ["custom_event"], stepLimit: 4, edgeLimit: 30 } };
    case "LifecycleQuery": return { kind, ...common, interval: "week", series: plain.slice(0, 1) };
    case "StickinessQuery": return { kind, ...common, interval: "day", series: plain };
    case "FunnelsQuery": return { kind, ...common, series: plain, funnelsFilter: { funnelWindowInterval: 14, funnelWindowIntervalUnit: "day" } };
    default: return { kind, ...common, interval: "day", series: series as unknown as QueryNode[] };
  }
}

/** The query without what is not filled in yet, or a text that says what is missing. */
export function prepareQuery(query: QueryNode): QueryNode | string {
  const complete = (filters: unknown) => readFilters(filters)?.filter((one) => one.key !== "" && (Array.isArray(one.value) ? one.value.length > 0 : one.value !== "")) ?? filters;
  const prepared: QueryNode = { ...query };
  if (query.properties) prepared.properties = complete(query.properties) as never;
  if (query.series) {
    const series = readSeries(query);
    if (query.kind === "FunnelsQuery") {
      const steps = series.filter((one) => one.event || one.kind !== "EventsNode");
      if (steps.length < 2) return "A funnel needs at least two steps. Choose an event for each.";
    }
    prepared.series = series.filter((one) => query.kind !== "FunnelsQuery" || one.event || one.kind !== "EventsNode")
      .map((one) => ({ ...one, ...(one.properties ? { properties: complete(one.properties) } : {}) })) as never;
    const needsProperty = series.find((one) => one.math && /^(sum|avg|min|max|median|p\d+)$/.test(one.math) && !one.math_property);
    if (needsProperty) return `${needsProperty.math} needs a property. Choose one.`;
  }
  const breakdown = readPart(query, "breakdownFilter");
  if (query.breakdownFilter && (breakdown.breakdown === "" || breakdown.breakdown === undefined) && !breakdown.breakdowns) delete prepared.breakdownFilter;
  return prepared;
}
