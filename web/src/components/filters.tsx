// The editor of property filters, for conditions of flags and for queries.
import type { Json, PropertyFilter } from "../api/types";
import { suggestCohorts, suggestFlags, suggestProperties, suggestValues } from "../api/names";
import { project } from "../session";
import { Select } from "./basics";
import { Combobox, type Suggestion, ValueList } from "./combobox";

const OPERATORS: [string, string][] = [
  ["exact", "is"], ["is_not", "is not"], ["icontains", "contains"], ["not_icontains", "does not contain"], ["regex", "matches regex"],
  ["not_regex", "does not match regex"], ["gt", ">"], ["gte", "≥"], ["lt", "<"], ["lte", "≤"], ["is_set", "is set"], ["is_not_set", "is not set"],
  ["is_date_before", "is before date"], ["is_date_after", "is after date"], ["is_date_exact", "is on date"], ["semver_eq", "is version"],
  ["semver_gte", "version ≥"], ["semver_lt", "version <"],
];
const LISTS = ["exact", "is_not"];
const NO_VALUE = ["is_set", "is_not_set"];

/** Types of filters, with the name of each. */
export type FilterType = [string, string];
export const EVENT_FILTERS: FilterType[] = [["event", "event property"], ["person", "person property"], ["cohort", "cohort"]];
export const PERSON_FILTERS: FilterType[] = [["person", "person property"], ["cohort", "cohort"], ["flag", "other flag"]];

export function groupFilters(index: number): FilterType[] {
  const known = project.value?.group_types.find((one) => one.group_type_index === index);
  return [["group", `${known?.group_type ?? `group type ${index}`} property`]];
}

function newFilter(type: string, groupType: number | null): PropertyFilter {
  if (type === "cohort") return { key: "id", type, operator: "in", value: "" };
  if (type === "flag") return { key: "", type, operator: "flag_evaluates_to", value: true };
  return { key: "", type, operator: "exact", value: [], ...(type === "group" ? { group_type_index: groupType } : {}) };
}

const asList = (value: Json | undefined): string[] =>
  (Array.isArray(value) ? value : value === undefined || value === null || value === "" ? [] : [value]).map((one) => (typeof one === "string" ? one : JSON.stringify(one)));

/** Keeps the value where the new operator takes the same form. */
function changeOperator(filter: PropertyFilter, operator: string): PropertyFilter {
  const isList = LISTS.includes(operator);
  const values = asList(filter.value);
  const value: Json = NO_VALUE.includes(operator) ? operator : isList ? values.filter((one) => !NO_VALUE.includes(one)) : NO_VALUE.includes(values[0] ?? "") ? "" : (values[0] ?? "");
  return { ...filter, operator, value };
}

function FilterValue({ filter, onChange }: { filter: PropertyFilter; onChange: (filter: PropertyFilter) => void }) {
  const { key, operator = "exact", type = "event", value } = filter;
  const suggest = (text: string, signal: AbortSignal) => suggestValues(text, key, type, signal);
  if (NO_VALUE.includes(operator)) return null;
  if (LISTS.includes(operator)) {
    return <ValueList label={`Values of ${key}`} values={asList(value)} onChange={(values) => onChange({ ...filter, value: values })} suggest={suggest} />;
  }
  const hint = operator.startsWith("is_date") ? "-30d or 2026-01-31" : "value";
  return <Combobox label={`Value of ${key}`} isLabelHidden value={asList(value)[0] ?? ""} placeholder={hint} onChange={(text) => onChange({ ...filter, value: text })} suggest={suggest} />;
}

function FilterRow({ filter, types, groupType, onChange, onRemove }: { filter: PropertyFilter; types: FilterType[]; groupType: number | null; onChange: (filter: PropertyFilter) => void; onRemove: () => void }) {
  const type = filter.type ?? "event";
  const shown = types.some(([one]) => one === type) ? types : [...types, [type, type] as FilterType];
  const operators = OPERATORS.some(([one]) => one === (filter.operator ?? "exact")) ? OPERATORS : [...OPERATORS, [filter.operator!, filter.operator!] as [string, string]];
  const suggestKeys = (text: string, signal: AbortSignal): Promise<Suggestion[]> => suggestProperties(text, type, signal, groupType);
  return (
    <div class="filter" role="group" aria-label={`Filter ${filter.key}`}>
      {shown.length > 1 && <Select label="Type of filter" isHidden value={type} values={shown} onChange={(chosen) => onChange(newFilter(chosen, groupType))} />}
      {type === "cohort" ? (
        <>
          <Select label="Operator" isHidden value={filter.operator ?? "in"} values={[["in", "in"], ["not_in", "not in"]]} onChange={(operator) => onChange({ ...filter, operator })} />
          <Combobox
            label="Id of the cohort" isLabelHidden placeholder="id of the cohort" value={String(filter.value ?? "")} suggest={suggestCohorts}
            onChange={(text) => onChange({ ...filter, value: /^\d+$/.test(text) ? Number(text) : text })}
          />
          {filter.cohort_name && <small>{filter.cohort_name}</small>}
        </>
      ) : type === "flag" ? (
        <>
          <Combobox label="Id of the flag" isLabelHidden placeholder="id of the flag" value={filter.key} suggest={suggestFlags} onChange={(key) => onChange({ ...filter, key })} />
          <Combobox
            label="Value of the flag" isLabelHidden value={String(filter.value ?? "")} suggest={async () => [{ value: "true" }, { value: "false" }]}
            onChange={(text) => onChange({ ...filter, value: text === "true" ? true : text === "false" ? false : text })}
          />
        </>
      ) : (
        <>
          <Combobox label="Property" isLabelHidden placeholder="property" value={filter.key} suggest={suggestKeys} onChange={(key) => onChange({ ...filter, key })} />
          <Select label="Operator" isHidden value={filter.operator ?? "exact"} values={operators} onChange={(operator) => onChange(changeOperator(filter, operator))} />
          <FilterValue filter={filter} onChange={onChange} />
        </>
      )}
      <button type="button" class="small quiet" aria-label={`Remove the filter ${filter.key}`} onClick={onRemove}>×</button>
    </div>
  );
}

export interface FiltersProps {
  filters: PropertyFilter[];
  types: FilterType[];
  groupType?: number | null;
  onChange: (filters: PropertyFilter[]) => void;
  addLabel?: string;
}

export function Filters({ filters, types, groupType = null, onChange, addLabel = "Add filter" }: FiltersProps) {
  return (
    <div class="filters">
      {filters.map((filter, index) => (
        <FilterRow
          key={index} filter={filter} types={types} groupType={groupType}
          onChange={(changed) => onChange(filters.map((one, place) => (place === index ? changed : one)))}
          onRemove={() => onChange(filters.filter((_, place) => place !== index))}
        />
      ))}
      <button type="button" class="small" onClick={() => onChange([...filters, newFilter(types[0][0], groupType)])}>{addLabel}</button>
    </div>
  );
}

/** Whether the filter has what it needs to be sent. */
export function isComplete(filter: PropertyFilter): boolean {
  if (filter.key === "") return false;
  if (filter.operator !== undefined && NO_VALUE.includes(filter.operator)) return true;
  return Array.isArray(filter.value) ? filter.value.length > 0 : filter.value !== "" && filter.value !== undefined;
}
