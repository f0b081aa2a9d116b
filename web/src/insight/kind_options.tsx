// The options that only one kind of query has.
import type { Json, QueryNode } from "../api/types";
import { suggestEvents } from "../api/names";
import { Field, Select } from "../components/basics";
import { Combobox, ValueList } from "../components/combobox";
import type { EditorProps } from "./builder";
import { readPart, withPart } from "./model";

const DISPLAYS: [string, string][] = [
  ["ActionsLineGraph", "lines"], ["ActionsLineGraphCumulative", "lines, cumulative"], ["ActionsAreaGraph", "areas"], ["ActionsBar", "stacked bars"], ["ActionsUnstackedBar", "bars"],
  ["ActionsBarValue", "bars of totals"], ["ActionsPie", "pie"], ["BoldNumber", "number"], ["ActionsTable", "table"], ["WorldMap", "countries"],
];

function TrendOptions({ query, onChange }: EditorProps) {
  const filter = readPart(query, "trendsFilter");
  const compare = readPart(query, "compareFilter");
  return (
    <section class="row" aria-label="Options">
      <Select label="Picture" value={String(filter.display ?? "ActionsLineGraph")} values={DISPLAYS} onChange={(display) => onChange(withPart(query, "trendsFilter", { display }))} />
      <Field label="Formula" value={String(filter.formula ?? "")} placeholder="A / B" onInput={(formula) => onChange(withPart(query, "trendsFilter", { formula }))} />
      <label class="check">
        <input type="checkbox" checked={compare.compare === true} onChange={(event) => onChange(withPart(query, "compareFilter", { compare: event.currentTarget.checked || null }))} />
        Compare with the period before
      </label>
    </section>
  );
}

const UNITS: [string, string][] = [["minute", "minutes"], ["hour", "hours"], ["day", "days"], ["week", "weeks"], ["month", "months"]];

function FunnelOptions({ query, onChange }: EditorProps) {
  const filter = readPart(query, "funnelsFilter");
  const set = (changes: Record<string, Json>) => onChange(withPart(query, "funnelsFilter", changes));
  return (
    <section class="row" aria-label="Options">
      <Select label="Picture" value={String(filter.funnelVizType ?? "steps")} values={[["steps", "steps"], ["trends", "conversion by period"], ["time_to_convert", "time to convert"]]} onChange={(funnelVizType) => set({ funnelVizType })} />
      <Select label="Order of steps" value={String(filter.funnelOrderType ?? "ordered")} values={[["ordered", "in order"], ["strict", "directly after each other"], ["unordered", "any order"]]} onChange={(funnelOrderType) => set({ funnelOrderType })} />
      <label class="field narrow"><span>Within</span><input type="number" min={1} value={Number(filter.funnelWindowInterval ?? 14)} onInput={(event) => set({ funnelWindowInterval: Number(event.currentTarget.value) || 14 })} /></label>
      <Select label="Unit" value={String(filter.funnelWindowIntervalUnit ?? "day")} values={UNITS} onChange={(funnelWindowIntervalUnit) => set({ funnelWindowIntervalUnit })} />
    </section>
  );
}

function RetentionOptions({ query, onChange }: EditorProps) {
  const filter = readPart(query, "retentionFilter");
  const set = (changes: Record<string, Json>) => onChange(withPart(query, "retentionFilter", changes));
  const readEvent = (name: string) => { const entity = filter[name]; return typeof entity === "object" && entity && !Array.isArray(entity) ? String(entity.id ?? "") : ""; };
  const setEvent = (name: string, event: string) => set({ [name]: { ...readPart(filter as QueryNode, name), id: event || null, type: "events" } });
  return (
    <section aria-label="Options">
      <div class="row">
        <Combobox label="Start with" value={readEvent("targetEntity")} placeholder="all events" suggest={suggestEvents} onChange={(event) => setEvent("targetEntity", event)} />
        <Combobox label="Return with" value={readEvent("returningEntity")} placeholder="all events" suggest={suggestEvents} onChange={(event) => setEvent("returningEntity", event)} />
      </div>
      <div class="row">
        <Select label="Period" value={String(filter.period ?? "Day")} values={[["Hour", "hour"], ["Day", "day"], ["Week", "week"], ["Month", "month"]]} onChange={(period) => set({ period })} />
        <label class="field narrow"><span>Periods</span><input type="number" min={1} max={100} value={Number(filter.totalIntervals ?? 8)} onInput={(event) => set({ totalIntervals: Number(event.currentTarget.value) || 8 })} /></label>
        <Select label="Starts" value={String(filter.retentionType ?? "retention_recurring")} values={[["retention_recurring", "each period"], ["retention_first_time", "first time"]]} onChange={(retentionType) => set({ retentionType })} />
      </div>
    </section>
  );
}

function StickinessOptions({ query, onChange }: EditorProps) {
  const filter = readPart(query, "stickinessFilter");
  return (
    <label class="check">
      <input type="checkbox" checked={filter.computedAs === "cumulative"} onChange={(event) => onChange(withPart(query, "stickinessFilter", { computedAs: event.currentTarget.checked ? "cumulative" : null }))} />
      Cumulative: that many intervals or more
    </label>
  );
}

const PATH_EVENTS: [string, string][] = [["custom_event", "custom events"], ["$pageview", "page views"], ["$screen", "screens"]];

function PathOptions({ query, onChange }: EditorProps) {
  const filter = readPart(query, "pathsFilter");
  const set = (changes: Record<string, Json>) => onChange(withPart(query, "pathsFilter", changes));
  const types = (Array.isArray(filter.includeEventTypes) ? filter.includeEventTypes : []) as string[];
  const excluded = (Array.isArray(filter.excludeEvents) ? filter.excludeEvents : []).map(String);
  return (
    <section aria-label="Options">
      <fieldset class="row plain">
        <legend>Events of the paths</legend>
        {PATH_EVENTS.map(([type, name]) => (
          <label class="check" key={type}>
            <input type="checkbox" checked={types.includes(type)} onChange={(event) => set({ includeEventTypes: event.currentTarget.checked ? [...types, type] : types.filter((one) => one !== type) })} />
            {name}
          </label>
        ))}
      </fieldset>
      <div class="row">
        <Combobox label="Begin with" value={String(filter.startPoint ?? "")} placeholder="anything" suggest={suggestEvents} onChange={(startPoint) => set({ startPoint })} />
        <Combobox label="End with" value={String(filter.endPoint ?? "")} placeholder="anything" suggest={suggestEvents} onChange={(endPoint) => set({ endPoint })} />
        <label class="field narrow"><span>Steps</span><input type="number" min={2} max={20} value={Number(filter.stepLimit ?? 5)} onInput={(event) => set({ stepLimit: Number(event.currentTarget.value) || 5 })} /></label>
        <label class="field narrow"><span>Edges</span><input type="number" min={1} max={1000} value={Number(filter.edgeLimit ?? 50)} onInput={(event) => set({ edgeLimit: Number(event.currentTarget.value) || 50 })} /></label>
      </div>
      <div class="label">Left out</div>
      <ValueList label="Events that are left out" values={excluded} suggest={suggestEvents} onChange={(excludeEvents) => set({ excludeEvents })} />
    </section>
  );
}

export function KindOptions(props: EditorProps) {
  switch (props.query.kind) {
    case "TrendsQuery": return <TrendOptions {...props} />;
    case "FunnelsQuery": return <FunnelOptions {...props} />;
    case "RetentionQuery": return <RetentionOptions {...props} />;
    case "StickinessQuery": return <StickinessOptions {...props} />;
    case "PathsQuery": return <PathOptions {...props} />;
    default: return null;
  }
}
