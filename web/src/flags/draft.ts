// The edited state of a flag, and the request that stores the difference.
import { request } from "../api/client";
import type { Flag, FlagFilters, FlagVariant } from "../api/types";
import { projectPath } from "../session";

/** The fields that the editor changes. */
export type FlagDraft = Pick<Flag, "key" | "name" | "active" | "filters" | "tags" | "evaluation_runtime" | "ensure_experience_continuity">;
const FIELDS: (keyof FlagDraft)[] = ["key", "name", "active", "filters", "tags", "evaluation_runtime", "ensure_experience_continuity"];

export const NEW_DRAFT: FlagDraft = {
  key: "", name: "", active: true, filters: { groups: [{ properties: [], rollout_percentage: 100 }] }, tags: [], evaluation_runtime: "all", ensure_experience_continuity: false,
};

/** The filters as they are stored: responses add the names of cohorts. */
function removeCohortNames(filters: FlagFilters): FlagFilters {
  const groups = filters.groups.map((condition) =>
    condition.properties ? { ...condition, properties: condition.properties.map(({ cohort_name, ...filter }) => (cohort_name === undefined ? filter : filter)) } : condition);
  return { ...filters, groups };
}

/** Cohorts keep their names in the draft, for display. */
export function startDraft(flag: Flag): FlagDraft {
  return structuredClone(Object.fromEntries(FIELDS.map((field) => [field, flag[field]]))) as FlagDraft;
}

const sendable = (draft: Partial<FlagDraft>): Partial<FlagDraft> => (draft.filters ? { ...draft, filters: removeCohortNames(draft.filters) } : draft);

export function listChanges(base: FlagDraft, draft: FlagDraft): (keyof FlagDraft)[] {
  return FIELDS.filter((field) => JSON.stringify(base[field]) !== JSON.stringify(draft[field]));
}

function pick(draft: FlagDraft, fields: (keyof FlagDraft)[]): Partial<FlagDraft> {
  return sendable(Object.fromEntries(fields.map((field) => [field, draft[field]])));
}

const flagPath = (id: number) => `${projectPath.value}/feature_flags/${id}/`;

export const fetchFlag = (id: string | number, signal?: AbortSignal) => request<Flag>("GET", `${projectPath.value}/feature_flags/${encodeURIComponent(id)}/`, { signal });

export const createFlag = (draft: FlagDraft) => request<Flag>("POST", `${projectPath.value}/feature_flags/`, { body: sendable(draft) });

/** Stores the changed fields. The server rejects the request with 409 if one of them was changed since `base` was read. */
export function saveFlag(base: Flag, draft: FlagDraft): Promise<Flag> {
  const fields = listChanges(startDraft(base), draft);
  const body = { ...pick(draft, fields), version: base.version, original_flag: pick(startDraft(base), fields) };
  return request("PATCH", flagPath(base.id), { body });
}

/** Sets the fields that differ between the two back to those of `before`. Rejected with 409 if one was changed since `after`. */
export function restoreFlag(before: Flag, after: Flag): Promise<Flag> {
  const fields = listChanges(startDraft(before), startDraft(after));
  const body = { ...pick(startDraft(before), fields), version: after.version, original_flag: pick(startDraft(after), fields) };
  return request("PATCH", flagPath(before.id), { body });
}

export const setDeleted = (flag: Flag, deleted: boolean) => request<Flag>("PATCH", flagPath(flag.id), { body: { deleted } });

/** Why the draft cannot be sent, or null. The server validates everything else. */
export function findProblem(draft: FlagDraft): string | null {
  if (!/^[A-Za-z0-9_-]{1,400}$/.test(draft.key)) return "The key takes 1 to 400 letters, digits, hyphens and underscores.";
  const variants = draft.filters.multivariate?.variants ?? [];
  const total = sumShares(variants);
  if (variants.length > 0 && total !== 100) return `The shares of the variants add up to ${total} %, not 100 %.`;
  if (variants.some(({ key }) => key === "")) return "A variant has no key.";
  for (const [key, payload] of Object.entries(draft.filters.payloads ?? {})) {
    try {
      if (typeof payload === "string") JSON.parse(payload);
    } catch {
      return `The payload of ${key} is not JSON. A text needs quotes: "text".`;
    }
  }
  return null;
}

export const sumShares = (variants: FlagVariant[]) => Math.round(variants.reduce((sum, { rollout_percentage }) => sum + rollout_percentage, 0) * 1e6) / 1e6;

/** Divides 100 % equally, in whole numbers. */
export function divideEqually(variants: FlagVariant[]): FlagVariant[] {
  const share = Math.floor(100 / variants.length);
  const rest = 100 - share * variants.length;
  return variants.map((variant, index) => ({ ...variant, rollout_percentage: share + (index < rest ? 1 : 0) }));
}

/** Payloads of keys that the flag no longer has are removed. */
export function withVariants(filters: FlagFilters, variants: FlagVariant[]): FlagFilters {
  const keys = variants.length > 0 ? variants.map(({ key }) => key) : ["true"];
  const payloads = Object.fromEntries(Object.entries(filters.payloads ?? {}).filter(([key]) => keys.includes(key)));
  const groups = filters.groups.map((condition) => (condition.variant && !keys.includes(condition.variant) ? { ...condition, variant: null } : condition));
  const next: FlagFilters = { ...filters, groups, multivariate: variants.length > 0 ? { ...filters.multivariate, variants } : null };
  if (filters.payloads) next.payloads = payloads;
  return next;
}
