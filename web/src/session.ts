// The signed-in key, its owner and projects, and the chosen project.
import { computed, signal } from "@preact/signals";
import { ApiError, apiKey, keyRejected, request } from "./api/client";
import type { Page, PersonalApiKey, Project, ProjectSummary } from "./api/types";
import { removeStoredKey, storeKey } from "./stored_key";

const PROJECT_ITEM = "pennon.project";

export interface Session {
  key: PersonalApiKey;
  projects: { id: number; name: string }[];
}

export const session = signal<Session | null>(null);
export const project = signal<Project | null>(null);
export const projectPath = computed(() => `api/projects/${project.value?.id}`);

/** What the console needs each scope for, in the order of the views. */
export const SCOPES: [string, string][] = [
  ["project:read", "read the project: its name, token and group types"],
  ["feature_flag:read", "list flags, evaluate them, count the people of a condition"],
  ["feature_flag:write", "create and change flags, and the roles that may edit them"],
  ["insight:read", "list insights and dashboards' pictures"],
  ["insight:write", "save insights and put them on dashboards"],
  ["query:read", "calculate queries, and list the events, names and values of the project"],
  ["dashboard:read", "list dashboards"],
  ["dashboard:write", "create and change dashboards"],
  ["person:read", "list persons, and the people behind a number"],
  ["activity_log:read", "read who changed what"],
  ["sharing_configuration:read", "read the sharing link of an insight or a dashboard"],
  ["sharing_configuration:write", "enable, replace and revoke a sharing link"],
  ["cohort:read", "list cohorts"],
  ["action:read", "list actions"],
  ["event_definition:read", "complete names of events"],
  ["property_definition:read", "complete names of properties"],
  ["organization:read", "read organizations"],
];

/** Whether the key has this scope: `*` has all, `x:write` includes `x:read`. */
export function hasScope(scope: string): boolean {
  const scopes = session.value?.key.scopes ?? [];
  return scopes.includes("*") || scopes.includes(scope) || scopes.includes(scope.replace(/:read$/, ":write"));
}

/** Why a write is not offered, or null if the key permits it. */
export function explainMissingScope(scope: string): string | null {
  if (hasScope(scope)) return null;
  return `This key is ${session.value?.key.scopes.some((known) => known.endsWith(":write")) ? "limited" : "read-only"}: it lacks the scope ${scope}.`;
}

/** Takes `#key=...` from the address, and removes it from the address and the history entry at once. */
export function takeKeyFromAddress(): void {
  const match = /^#key=([^&]+)/.exec(location.hash);
  if (!match) return;
  history.replaceState(null, "", `${location.pathname}#/`);
  try {
    storeKey(decodeURIComponent(match[1]).trim());
    sessionStorage.removeItem(PROJECT_ITEM);
  } catch {
    // A malformed escape: the sign-in form is shown.
  }
}

/** The text for a key that the server rejected. */
export function explainSignInError(error: unknown): string {
  if (!(error instanceof ApiError)) return String(error);
  if (error.status !== 401) return error.message;
  return `${error.message} It is mistyped, expired or revoked. Create another one: pennon keys create --label console`;
}

async function listProjects(key: PersonalApiKey, secret: string): Promise<{ id: number; name: string }[]> {
  if (key.scoped_teams.length === 0) {
    try {
      const page = await request<Page<ProjectSummary>>("GET", "api/projects/", { query: { limit: 1000 }, key: secret });
      return page.results.map(({ id, name }) => ({ id, name }));
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 403)) throw error;
      return [];
    }
  }
  return key.scoped_teams.map((id) => ({ id, name: `Project ${id}` }));
}

/** Validates the key with the server, and starts the session with it. */
export async function signIn(secret: string): Promise<void> {
  const key = await request<PersonalApiKey>("GET", "api/personal_api_keys/@current/", { key: secret });
  const projects = await listProjects(key, secret);
  storeKey(secret);
  keyRejected.value = null;
  apiKey.value = secret;
  session.value = { key, projects };
  const stored = Number(sessionStorage.getItem(PROJECT_ITEM));
  const chosen = projects.find(({ id }) => id === stored) ?? (projects.length === 1 ? projects[0] : null);
  if (chosen) await chooseProject(chosen.id);
}

/** Without `project:read` the project has only its id; views that need more say so. */
export async function chooseProject(id: number): Promise<void> {
  let chosen: Project;
  try {
    chosen = await request<Project>("GET", `api/projects/${id}/`);
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 403 && error.message.includes("scope"))) throw error;
    chosen = { id, name: `Project ${id}`, api_token: "", group_types: [], timezone: "UTC", ingested_event: true } as unknown as Project;
  }
  sessionStorage.setItem(PROJECT_ITEM, String(id));
  project.value = chosen;
}

export function leaveProject(): void {
  sessionStorage.removeItem(PROJECT_ITEM);
  project.value = null;
}

export function signOut(): void {
  removeStoredKey();
  sessionStorage.removeItem(PROJECT_ITEM);
  apiKey.value = null;
  session.value = null;
  project.value = null;
}
