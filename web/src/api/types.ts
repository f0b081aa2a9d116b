// Names for the schemas of docs/openapi.json. Where the document permits any JSON (filters, query nodes), the console's own narrower
// types say which fields it reads; unknown fields are kept on every write.
import type { components } from "./schema";

type Schemas = components["schemas"];

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type JsonObject = { [name: string]: Json };

export interface Page<T> {
  count: number;
  next: string | null;
  previous: string | null;
  results: T[];
}

export type ActivityEntry = Schemas["ActivityEntry"];
export type ActivityPage = Omit<Schemas["ActivityPage"], "results"> & { results: ActivityEntry[] };
export type Cohort = Schemas["Cohort"];
export type CreatedApiKey = Schemas["CreatedApiKey"];
export type DashboardSummary = Schemas["DashboardSummary"];
export type EventDefinition = Schemas["EventDefinition"];
export type ListedApiKey = Schemas["ListedApiKey"];
export type PersonalApiKey = Schemas["PersonalApiKey"];
export type Project = Schemas["Project"];
export type ProjectSummary = Schemas["ProjectSummary"];
export type PropertyDefinition = Schemas["PropertyDefinition"];
export type Role = Schemas["Role"];
export type RoleAccess = Schemas["RoleAccess"];
export type Sharing = Schemas["Sharing"];
export type User = Schemas["User"];

/** A condition on a property, of a flag or of a query. */
export interface PropertyFilter {
  key: string;
  value?: Json;
  operator?: string;
  type?: string;
  group_type_index?: number | null;
  cohort_name?: string | null;
}

/** An entry of `filters.groups`: property filters and a rollout percentage. */
export interface FlagCondition {
  properties?: PropertyFilter[];
  rollout_percentage?: number | null;
  variant?: string | null;
}

export interface FlagVariant {
  key: string;
  name?: string;
  rollout_percentage: number;
}

export interface FlagFilters {
  groups: FlagCondition[];
  multivariate?: { variants: FlagVariant[] } | null;
  payloads?: Record<string, Json>;
  aggregation_group_type_index?: number | null;
}

export type Flag = Omit<Schemas["FeatureFlag"], "filters"> & { filters: FlagFilters };
export type FlagImpact = Schemas["FlagImpactResult"];
export type FlagStatus = Schemas["FeatureFlagStatus"];
export type BlastRadius = Schemas["BlastRadius"];

export interface FlagEvaluation {
  value: boolean | string;
  evaluation: { reason: string; condition_index: number | null; description: string | null };
}

export type StoredEvent = Omit<Schemas["Event"], "properties"> & { properties: JsonObject };
export type Person = Omit<Schemas["Person"], "properties"> & { properties: JsonObject };

/** A query node: `kind`, and the fields of that kind. */
export type QueryNode = { kind: string } & JsonObject;

export interface QueryResponse {
  results: unknown;
  is_cached: boolean;
  last_refresh: string | null;
  hogql: string | null;
  query_status: { id: string; complete: boolean; error?: boolean; error_message?: string | null } | null;
}

export interface Insight {
  id: number;
  short_id: string;
  name: string | null;
  derived_name: string | null;
  description: string | null;
  filters: JsonObject;
  query: QueryNode | null;
  result: unknown;
  deleted: boolean;
  dashboards: number[];
  favorited: boolean;
  saved: boolean;
  tags: string[];
  created_at: string;
  created_by: User | null;
  last_modified_at: string;
  last_modified_by: User | null;
  last_refresh: string | null;
}

export interface Tile {
  id: number;
  order: number;
  insight: Insight | null;
}

export interface Dashboard extends Omit<DashboardSummary, "tiles"> {
  tiles: Tile[];
}
