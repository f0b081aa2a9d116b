// Flags, conditions and changes in a sentence.
import type { FlagCondition, FlagFilters, Json, PropertyFilter } from "../api/types";
import { formatValue } from "../format";

const OPERATOR_TEXTS: Record<string, string> = {
  exact: "is", is_not: "is not", icontains: "contains", not_icontains: "does not contain", regex: "matches", not_regex: "does not match",
  gt: ">", gte: "≥", lt: "<", lte: "≤", is_set: "is set", is_not_set: "is not set", is_date_before: "is before", is_date_after: "is after",
  is_date_exact: "is on", in: "in", not_in: "not in", flag_evaluates_to: "is",
};

export function describeFilter(filter: PropertyFilter): string {
  const operator = OPERATOR_TEXTS[filter.operator ?? "exact"] ?? filter.operator;
  if (filter.type === "cohort") return `${operator} cohort ${filter.cohort_name ?? formatValue(filter.value)}`;
  const name = filter.type === "flag" ? `flag ${filter.key}` : filter.key;
  if (filter.operator === "is_set" || filter.operator === "is_not_set") return `${name} ${operator}`;
  const value = Array.isArray(filter.value) ? filter.value.map(formatValue).join(" or ") : formatValue(filter.value);
  return `${name} ${operator} ${value}`;
}

export function describeCondition(condition: FlagCondition): string {
  const filters = condition.properties ?? [];
  const share = condition.rollout_percentage ?? 100;
  const who = filters.length === 0 ? "everybody" : filters.map(describeFilter).join(" and ");
  const variant = condition.variant ? `, variant ${condition.variant}` : "";
  return share === 100 ? `${who}${variant}` : `${share} % of ${who}${variant}`;
}

/** Whether some condition includes everybody. */
export function includesAll(filters: FlagFilters): boolean {
  return filters.groups.some((condition) => (condition.properties ?? []).length === 0 && (condition.rollout_percentage ?? 100) === 100);
}

/** The whole flag, as a list shows it. */
export function describeRollout(filters: FlagFilters): string {
  const variants = filters.multivariate?.variants ?? [];
  const suffix = variants.length > 0 ? ` · ${variants.length} variants` : "";
  if (filters.groups.length === 0) return "no condition";
  if (includesAll(filters)) return `everybody${suffix}`;
  const first = describeCondition(filters.groups[0]);
  return `${first}${filters.groups.length > 1 ? ` or ${filters.groups.length - 1} more` : ""}${suffix}`;
}

export interface Difference {
  label: string;
  before: string | null;
  after: string | null;
}

const FIELD_LABELS: Record<string, string> = {
  active: "State", key: "Key", name: "Name", tags: "Tags", deleted: "Deleted", evaluation_runtime: "Runtime", bucketing_identifier: "Bucketing by",
  ensure_experience_continuity: "Persist across login", is_remote_configuration: "Remote config", has_encrypted_payloads: "Encrypted payloads",
};

function readFilters(value: unknown): FlagFilters {
  const filters = (value ?? {}) as Partial<FlagFilters>;
  return { ...filters, groups: filters.groups ?? [] };
}

/** What differs between two versions of `filters`: conditions, variants, payloads, the rest as JSON. */
export function compareFilters(before: unknown, after: unknown): Difference[] {
  const [left, right] = [readFilters(before), readFilters(after)];
  const rows: Difference[] = [];
  const add = (label: string, was: string | null, is: string | null) => {
    if (was !== is) rows.push({ label, before: was, after: is });
  };
  for (let index = 0; index < Math.max(left.groups.length, right.groups.length); index += 1) {
    const [was, is] = [left.groups[index], right.groups[index]];
    add(`Condition ${index + 1}`, was ? describeCondition(was) : null, is ? describeCondition(is) : null);
  }
  const variants = (filters: FlagFilters) => new Map((filters.multivariate?.variants ?? []).map((one) => [one.key, `${one.rollout_percentage} %${one.name ? ` (${one.name})` : ""}`]));
  const [wereVariants, areVariants] = [variants(left), variants(right)];
  for (const key of new Set([...wereVariants.keys(), ...areVariants.keys()])) add(`Variant ${key}`, wereVariants.get(key) ?? null, areVariants.get(key) ?? null);
  const payload = (filters: FlagFilters, key: string) => (filters.payloads && key in filters.payloads ? formatValue(filters.payloads[key]) : null);
  for (const key of new Set([...Object.keys(left.payloads ?? {}), ...Object.keys(right.payloads ?? {})])) add(`Payload ${key}`, payload(left, key), payload(right, key));
  for (const name of new Set([...Object.keys(left), ...Object.keys(right)])) {
    if (["groups", "multivariate", "payloads"].includes(name)) continue;
    const text = (filters: FlagFilters) => { const value = (filters as unknown as Record<string, Json>)[name]; return value === undefined || value === null ? null : formatValue(value); };
    add(name, text(left), text(right));
  }
  return rows;
}

/** A changed field of an activity entry as rows to read. */
export function describeChange(field: string, before: unknown, after: unknown): Difference[] {
  if (field === "version") return [];
  if (field === "filters") return compareFilters(before, after);
  const text = (value: unknown) => {
    if (value === null || value === undefined) return null;
    if (field === "active") return value ? "on" : "off";
    if (typeof value === "boolean") return value ? "yes" : "no";
    return Array.isArray(value) ? value.map(formatValue).join(", ") : formatValue(value);
  };
  return [{ label: FIELD_LABELS[field] ?? field, before: text(before), after: text(after) }];
}
