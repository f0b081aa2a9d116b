// Routes are fragments, such as `#/flags/3?tab=history`: one page serves all of them, also below a gateway's stage prefix.
import { signal } from "@preact/signals";

export interface Route {
  /** The view, such as `flags`; empty for the start page. */
  view: string;
  /** The id of a record, `new`, or null for a list. */
  id: string | null;
  query: URLSearchParams;
}

export function parseRoute(fragment: string): Route {
  const [path, query = ""] = fragment.replace(/^#\/?/, "").split("?", 2);
  const [view = "", id = null] = path.split("/").map(decodeURIComponent);
  return { view, id: id || null, query: new URLSearchParams(query) };
}

function readRoute(): Route {
  try {
    return parseRoute(location.hash);
  } catch {
    return { view: "", id: null, query: new URLSearchParams() };
  }
}

export const route = signal<Route>(readRoute());

export function buildLink(view: string, id: string | number | null = null, query: Record<string, string> = {}): string {
  const path = id === null ? view : `${view}/${encodeURIComponent(id)}`;
  const parameters = new URLSearchParams(query).toString();
  return `#/${path}${parameters && `?${parameters}`}`;
}

/** Opens a view after an editor has stored its record: unsaved changes are not checked. */
export function navigate(link: string): void {
  isLeaving = null;
  location.hash = link;
}

/** Set by an editor with unsaved changes: whether the user leaves it for another view. */
let isLeaving: (() => boolean) | null = null;

export function guardLeaving(check: (() => boolean) | null): void {
  isLeaving = check;
}

/** Changes the query of the route without a history entry. */
export function replaceQuery(query: Record<string, string>): void {
  const current = route.value;
  const kept = Object.fromEntries(Object.entries(query).filter(([, value]) => value !== ""));
  history.replaceState(null, "", buildLink(current.view, current.id, kept));
  route.value = readRoute();
}

/** Writes the query into the address, from which Back restores it, without opening the view anew. */
export function rememberQuery(query: Record<string, string>): void {
  history.replaceState(null, "", buildLink(route.value.view, route.value.id, query));
}

let isFirstRoute = true;

/** Whether the user has opened another view since the page was loaded. */
export const hasNavigated = () => !isFirstRoute;

addEventListener("hashchange", () => {
  const [current, next] = [route.value, readRoute()];
  const isOtherView = next.view !== current.view || next.id !== current.id;
  if (isOtherView && isLeaving && !isLeaving()) {
    history.pushState(null, "", buildLink(current.view, current.id, Object.fromEntries(current.query)));
    return;
  }
  isFirstRoute = false;
  route.value = readRoute();
});
