// The editor of conditions: property filters, a rollout percentage, and a forced variant.
import type { FlagCondition, FlagFilters } from "../api/types";
import { Select } from "../components/basics";
import { Filters, PERSON_FILTERS, groupFilters } from "../components/filters";
import { project } from "../session";
import { ConditionReach } from "./reach";

interface ConditionProps {
  condition: FlagCondition;
  order: number;
  filters: FlagFilters;
  onChange: (condition: FlagCondition) => void;
  onRemove: () => void;
  onMove: (by: number) => void;
}

function Condition({ condition, order, filters, onChange, onRemove, onMove }: ConditionProps) {
  const groupType = filters.aggregation_group_type_index ?? null;
  const share = condition.rollout_percentage ?? 100;
  const variants = filters.multivariate?.variants ?? [];
  const setShare = (text: string) => onChange({ ...condition, rollout_percentage: Math.min(100, Math.max(0, Number(text) || 0)) });
  return (
    <fieldset class="condition">
      <legend>Condition {order + 1}</legend>
      <div class="corner">
        <button type="button" class="small quiet" disabled={order === 0} aria-label={`Move condition ${order + 1} up`} onClick={() => onMove(-1)}>↑</button>
        <button type="button" class="small quiet" disabled={order === filters.groups.length - 1} aria-label={`Move condition ${order + 1} down`} onClick={() => onMove(1)}>↓</button>
        <button type="button" class="small quiet" aria-label={`Remove condition ${order + 1}`} onClick={onRemove}>Remove</button>
      </div>
      {(condition.properties ?? []).length === 0 && <p class="note">Everybody, at the rollout percentage.</p>}
      <Filters
        filters={condition.properties ?? []} types={groupType === null ? PERSON_FILTERS : groupFilters(groupType)} groupType={groupType}
        onChange={(properties) => onChange({ ...condition, properties })}
      />
      <div class="rollout">
        <label class="field">
          <span>Rollout of condition {order + 1}, %</span>
          <input type="number" min={0} max={100} step="any" value={share} onInput={(event) => setShare(event.currentTarget.value)} />
        </label>
        <input type="range" min={0} max={100} value={share} aria-label={`Rollout of condition ${order + 1}`} onInput={(event) => setShare(event.currentTarget.value)} />
        {variants.length > 0 && (
          <Select
            label="Variant" value={condition.variant ?? ""} values={[["", "by share"], ...variants.map(({ key }): [string, string] => [key, `always ${key}`])]}
            onChange={(variant) => onChange({ ...condition, variant: variant || null })}
          />
        )}
      </div>
      <ConditionReach condition={condition} groupType={groupType} />
    </fieldset>
  );
}

export function Conditions({ filters, onChange }: { filters: FlagFilters; onChange: (filters: FlagFilters) => void }) {
  const { groups } = filters;
  const change = (changed: FlagCondition[]) => onChange({ ...filters, groups: changed });
  const groupTypes = project.value?.group_types ?? [];
  const current = filters.aggregation_group_type_index ?? null;
  const setGroupType = (text: string) => {
    const index = text === "" ? null : Number(text);
    onChange({ ...filters, aggregation_group_type_index: index, groups: groups.map((one) => ({ ...one, properties: [] })) });
  };
  return (
    <section aria-label="Conditions">
      <h2>For whom</h2>
      <p class="note">The first condition that matches decides.</p>
      {(groupTypes.length > 0 || current !== null) && (
        <Select
          label="Decided by" value={current === null ? "" : String(current)} onChange={setGroupType}
          values={[["", "person"], ...groupTypes.map(({ group_type, group_type_index }): [string, string] => [String(group_type_index), group_type])]}
        />
      )}
      {groups.map((condition, order) => (
        <Condition
          key={order} condition={condition} order={order} filters={filters}
          onChange={(changed) => change(groups.map((one, place) => (place === order ? changed : one)))}
          onRemove={() => change(groups.filter((_, place) => place !== order))}
          onMove={(by) => {
            const moved = [...groups];
            moved.splice(order + by, 0, ...moved.splice(order, 1));
            change(moved);
          }}
        />
      ))}
      {groups.length === 0 && <p class="note">Without a condition the flag is off for everybody.</p>}
      <button type="button" onClick={() => change([...groups, { properties: [], rollout_percentage: 100 }])}>Add condition</button>
    </section>
  );
}
