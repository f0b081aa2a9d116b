// Completion of names: events, properties and their values, as the project has them.
import type { Suggestion } from "../components/combobox";
import { projectPath } from "../session";
import { request } from "./client";
import type { Cohort, EventDefinition, Flag, Page, PropertyDefinition } from "./types";

const LIMIT = 50;

export async function suggestEvents(text: string, signal: AbortSignal): Promise<Suggestion[]> {
  const page = await request<Page<EventDefinition>>("GET", `${projectPath.value}/event_definitions/`, { query: { search: text, limit: LIMIT }, signal });
  return page.results.map(({ name }) => ({ value: name }));
}

/** Properties of events, persons or groups. */
export async function suggestProperties(text: string, type: string, signal: AbortSignal, groupType?: number | null): Promise<Suggestion[]> {
  const query = { search: text, type, limit: LIMIT, group_type_index: type === "group" ? groupType : undefined };
  const page = await request<Page<PropertyDefinition>>("GET", `${projectPath.value}/property_definitions/`, { query, signal });
  return page.results.map(({ name, property_type }) => ({ value: name, note: property_type?.toLowerCase() }));
}

export async function suggestValues(text: string, key: string, type: string, signal: AbortSignal): Promise<Suggestion[]> {
  if (key === "" || (type !== "event" && type !== "person")) return [];
  const list = type === "person" ? "persons" : "events";
  const values = await request<{ name: unknown }[]>("GET", `${projectPath.value}/${list}/values/`, { query: { key, value: text, limit: LIMIT }, signal });
  return values.map(({ name }) => ({ value: String(name) }));
}

export async function suggestCohorts(text: string, signal: AbortSignal): Promise<Suggestion[]> {
  const page = await request<Page<Cohort>>("GET", `${projectPath.value}/cohorts/`, { query: { search: text, limit: LIMIT }, signal });
  return page.results.map(({ id, name }) => ({ value: String(id), note: name ?? "" }));
}

export async function suggestFlags(text: string, signal: AbortSignal): Promise<Suggestion[]> {
  const page = await request<Page<Flag>>("GET", `${projectPath.value}/feature_flags/`, { query: { search: text, limit: LIMIT }, signal });
  return page.results.map(({ id, key }) => ({ value: String(id), note: key }));
}

export async function suggestPersons(text: string, signal: AbortSignal): Promise<Suggestion[]> {
  type Found = { name: string | null; distinct_ids: string[] };
  const page = await request<Page<Found>>("GET", `${projectPath.value}/persons/`, { query: { search: text, limit: 20 }, signal });
  return page.results.map(({ name, distinct_ids }) => ({ value: distinct_ids[0] ?? "", note: name ?? "" })).filter(({ value }) => value !== "");
}
