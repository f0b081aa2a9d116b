// How many persons or groups conditions match, while one edits them.
import { request } from "../api/client";
import type { BlastRadius, FlagCondition, FlagFilters } from "../api/types";
import { formatNumber, formatShare } from "../charts/picture";
import { isComplete } from "../components/filters";
import { project, projectPath } from "../session";
import { useRequest, useSettled } from "../use_request";

const SETTLE_MS = 250;

export const countReach = (body: object, signal?: AbortSignal) => request<BlastRadius>("POST", `${projectPath.value}/feature_flags/user_blast_radius/`, { body, signal });

export function nameActors(groupType: number | null | undefined, count: number): string {
  if (groupType === null || groupType === undefined) return count === 1 ? "person" : "persons";
  return `groups of type ${project.value?.group_types.find((one) => one.group_type_index === groupType)?.group_type ?? groupType}`;
}

export function ConditionReach({ condition, groupType }: { condition: FlagCondition; groupType: number | null }) {
  const properties = useSettled((condition.properties ?? []).filter(isComplete), SETTLE_MS);
  const { data, error, isLoading } = useRequest(
    (signal) => countReach({ condition: { properties }, ...(groupType === null ? {} : { group_type_index: groupType }) }, signal),
    [JSON.stringify(properties), groupType],
  );
  if (error) return <p class="reach problem" role="status">{error.message}</p>;
  if (!data) return <p class="reach" role="status">Counting …</p>;
  const share = condition.rollout_percentage ?? 100;
  const { affected, total } = data;
  return (
    <p class="reach" role="status" aria-busy={isLoading}>
      Matches <strong>{formatNumber(affected)}</strong> of {formatNumber(total)} {nameActors(groupType, total)} ({formatShare(affected, total)}).
      {share < 100 && <> At {share} %: about <strong>{formatNumber(Math.round((affected * share) / 100))}</strong>.</>}
    </p>
  );
}

/** A bar of how many match some condition. */
export function WholeReach({ filters, isActive }: { filters: FlagFilters; isActive: boolean }) {
  const groupType = filters.aggregation_group_type_index ?? null;
  const conditions = useSettled(filters.groups.map((one) => ({ ...one, properties: (one.properties ?? []).filter(isComplete) })), SETTLE_MS);
  const { data, error } = useRequest(
    (signal) => countReach({ filters: { ...filters, groups: conditions }, ...(groupType === null ? {} : { group_type_index: groupType }) }, signal),
    [JSON.stringify(conditions), groupType],
  );
  if (error || !data) return <p class="note">{error ? error.message : "Counting …"}</p>;
  const { affected, total } = data;
  return (
    <div class="whole-reach">
      <p><strong>{formatNumber(affected)}</strong> of {formatNumber(total)} {nameActors(groupType, total)} match a condition, before the rollout percentages{isActive ? "" : "; the flag is off"}.</p>
      <meter min={0} max={Math.max(1, total)} value={affected} aria-label="Share that matches a condition" />
    </div>
  );
}
