// The editors of a query: series, range, breakdown, filters.
import type { Json, PropertyFilter, QueryNode } from "../api/types";
import { suggestEvents, suggestProperties } from "../api/names";
import { Select } from "../components/basics";
import { Combobox } from "../components/combobox";
import { EVENT_FILTERS, Filters } from "../components/filters";
import { KindOptions } from "./kind_options";
import { type SeriesNode, newSeries, readFilters, readPart, readSeries, withPart } from "./model";

export interface EditorProps {
  query: QueryNode;
  onChange: (query: QueryNode) => void;
}

const MATHS: [string, string][] = [
  ["total", "events"], ["dau", "unique persons"], ["weekly_active", "active in 7 days"], ["monthly_active", "active in 30 days"], ["unique_session", "unique sessions"],
  ["first_time_for_user", "first time for a person"], ["sum", "sum of"], ["avg", "average of"], ["min", "minimum of"], ["max", "maximum of"],
  ["median", "median of"], ["p90", "90th percentile of"], ["p95", "95th percentile of"], ["p99", "99th percentile of"],
];
const OF_PROPERTY = /^(sum|avg|min|max|median|p\d+)$/;

interface SeriesProps {
  series: SeriesNode;
  order: number;
  count: number;
  isFunnel: boolean;
  hasMath: boolean;
  onChange: (series: SeriesNode) => void;
  onRemove: () => void;
  onMove: (by: number) => void;
}

function SeriesEditor({ series, order, count, isFunnel, hasMath, onChange, onRemove, onMove }: SeriesProps) {
  const name = isFunnel ? `Step ${order + 1}` : `Series ${String.fromCharCode(65 + order)}`;
  const filters = readFilters(series.properties);
  return (
    <fieldset class="series">
      <legend class="for-readers">{name}</legend>
      <div class="series-line">
        <span class="order" aria-hidden="true">{isFunnel ? order + 1 : String.fromCharCode(65 + order)}</span>
        {series.kind === "EventsNode"
          ? <Combobox label={`Event of ${name}`} isLabelHidden value={series.event ?? ""} placeholder="all events" suggest={suggestEvents} onChange={(event) => onChange({ ...series, event: event || null, name: event || null })} />
          : <span class="token">{series.name ?? `action ${series.id}`}</span>}
        {hasMath && <Select label={`Counted as, ${name}`} isHidden value={series.math ?? "total"} values={MATHS.some(([one]) => one === (series.math ?? "total")) ? MATHS : [...MATHS, [series.math!, series.math!]]} onChange={(math) => onChange({ ...series, math })} />}
        {hasMath && OF_PROPERTY.test(series.math ?? "") && (
          <Combobox label={`Property of ${name}`} isLabelHidden placeholder="property" value={series.math_property ?? ""} suggest={(text, signal) => suggestProperties(text, "event", signal)} onChange={(property) => onChange({ ...series, math_property: property })} />
        )}
        {isFunnel && <button type="button" class="small quiet" disabled={order === 0} aria-label={`Move step ${order + 1} up`} onClick={() => onMove(-1)}>↑</button>}
        {count > 1 && <button type="button" class="small quiet" aria-label={`Remove ${name}`} onClick={onRemove}>×</button>}
      </div>
      {filters && <Filters filters={filters} types={EVENT_FILTERS} addLabel={`Filter ${isFunnel ? "step" : "series"}`} onChange={(properties) => onChange({ ...series, properties })} />}
    </fieldset>
  );
}

function SeriesList({ query, onChange }: EditorProps) {
  const series = readSeries(query);
  const isFunnel = query.kind === "FunnelsQuery";
  const change = (changed: SeriesNode[]) => onChange({ ...query, series: changed as unknown as Json });
  const most = isFunnel ? 32 : query.kind === "LifecycleQuery" ? 1 : 26;
  return (
    <section aria-label={isFunnel ? "Steps" : "Series"}>
      <h2>{isFunnel ? "Steps" : "Events"}</h2>
      {series.map((one, order) => (
        <SeriesEditor
          key={order} series={one} order={order} count={series.length} isFunnel={isFunnel} hasMath={query.kind === "TrendsQuery"}
          onChange={(changed) => change(series.map((other, place) => (place === order ? changed : other)))}
          onRemove={() => change(series.filter((_, place) => place !== order))}
          onMove={(by) => {
            const moved = [...series];
            moved.splice(order + by, 0, ...moved.splice(order, 1));
            change(moved);
          }}
        />
      ))}
      {series.length < most && <button type="button" class="small" onClick={() => change([...series, newSeries()])}>{isFunnel ? "Add step" : "Add series"}</button>}
    </section>
  );
}

const RANGES: [string, string][] = [
  ["-24h", "24 hours"], ["-7d", "7 days"], ["-14d", "14 days"], ["-30d", "30 days"], ["-90d", "90 days"], ["-180d", "180 days"], ["-1y", "a year"],
  ["mStart", "this month"], ["yStart", "this year"], ["all", "all time"],
];

function Range({ query, onChange }: EditorProps) {
  const { date_from = "-7d", date_to } = readPart(query, "dateRange") as { date_from?: string; date_to?: string };
  const set = (changes: Record<string, string | null>) => onChange(withPart(query, "dateRange", changes));
  const isFixed = /^\d{4}-/.test(date_from) || Boolean(date_to);
  const day = (time: string | undefined) => (time && /^\d{4}-/.test(time) ? time.slice(0, 10) : "");
  const values = RANGES.some(([one]) => one === date_from) || isFixed ? RANGES : [...RANGES, [date_from, date_from] as [string, string]];
  return (
    <div class="row">
      <Select
        label="Range" value={isFixed ? "fixed" : date_from} values={[...values, ["fixed", "dates …"]]}
        onChange={(range) => set(range === "fixed" ? { date_from: new Date(Date.now() - 29 * 86_400_000).toISOString().slice(0, 10), date_to: new Date().toISOString().slice(0, 10) } : { date_from: range, date_to: null })}
      />
      {isFixed && <label class="field"><span>From</span><input type="date" value={day(date_from)} onChange={(event) => set({ date_from: event.currentTarget.value })} /></label>}
      {isFixed && <label class="field"><span>To</span><input type="date" value={day(date_to)} onChange={(event) => set({ date_to: event.currentTarget.value })} /></label>}
    </div>
  );
}

const INTERVALS: [string, string][] = [["hour", "hour"], ["day", "day"], ["week", "week"], ["month", "month"]];
const BREAKDOWN_TYPES: [string, string][] = [["event", "event property"], ["person", "person property"]];

function Breakdown({ query, onChange }: EditorProps) {
  const part = readPart(query, "breakdownFilter");
  if (part.breakdowns || Array.isArray(part.breakdown)) return <p class="note">The breakdown has several properties; edit it as JSON through the API.</p>;
  const type = String(part.breakdown_type ?? "event");
  const types = BREAKDOWN_TYPES.some(([one]) => one === type) ? BREAKDOWN_TYPES : [...BREAKDOWN_TYPES, [type, type] as [string, string]];
  const set = (property: string, kind: string) => {
    if (property === "") {
      const { breakdownFilter: _, ...rest } = query;
      onChange(rest as QueryNode);
    } else onChange({ ...query, breakdownFilter: { ...part, breakdown: property, breakdown_type: kind } });
  };
  return (
    <section aria-label="Breakdown" class="row">
      <Combobox label="Breakdown by" value={String(part.breakdown ?? "")} placeholder="nothing" suggest={(text, signal) => suggestProperties(text, type, signal)} onChange={(property) => set(property, type)} />
      {part.breakdown !== undefined && <Select label="Type" value={type} values={types} onChange={(kind) => set(String(part.breakdown ?? ""), kind)} />}
    </section>
  );
}

export function QueryEditor({ query, onChange }: EditorProps) {
  const { kind } = query;
  const filters = readFilters(query.properties);
  const hasSeries = kind !== "RetentionQuery" && kind !== "PathsQuery";
  return (
    <>
      {hasSeries && <SeriesList query={query} onChange={onChange} />}
      <KindOptions query={query} onChange={onChange} />
      <Range query={query} onChange={onChange} />
      {["TrendsQuery", "LifecycleQuery", "StickinessQuery"].includes(kind) && (
        <Select label="Interval" value={String(query.interval ?? "day")} values={INTERVALS} onChange={(interval) => onChange({ ...query, interval })} />
      )}
      {["TrendsQuery", "FunnelsQuery", "RetentionQuery"].includes(kind) && <Breakdown query={query} onChange={onChange} />}
      <section aria-label="Filters">
        <h2>Filters</h2>
        {filters
          ? <Filters filters={filters} types={EVENT_FILTERS} onChange={(properties: PropertyFilter[]) => onChange({ ...query, properties: properties as unknown as Json })} />
          : <p class="note">The filters are nested groups, which the API edits and the console keeps.</p>}
        <label class="check">
          <input type="checkbox" checked={query.filterTestAccounts === true} onChange={(event) => onChange({ ...query, filterTestAccounts: event.currentTarget.checked })} />
          Without test accounts
        </label>
      </section>
    </>
  );
}
