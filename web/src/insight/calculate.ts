// Calculates a query, and waits for calculations in the background.
import { ApiError, request } from "../api/client";
import type { QueryResponse } from "../api/types";
import { projectPath } from "../session";

const POLL_MS = 700;

function pause(signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, POLL_MS);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

export function calculate(query: object, signal: AbortSignal, refresh: "blocking" | "force_blocking" = "blocking"): Promise<QueryResponse> {
  return calculateAt(`${projectPath.value}/query/`, { query, refresh }, signal);
}

/** The same of another operation that responds as `query/` does. */
export async function calculateAt(path: string, body: object, signal: AbortSignal): Promise<QueryResponse> {
  let response = await request<QueryResponse>("POST", path, { body, signal });
  while (response.query_status && !response.query_status.complete) {
    await pause(signal);
    const state = await request<{ query_status: QueryResponse["query_status"] & { results?: unknown } }>("GET", `${projectPath.value}/query/${encodeURIComponent(response.query_status.id)}/`, { signal });
    const status = state.query_status;
    if (status.error) throw new ApiError(400, status.error_message ?? "The calculation failed.");
    response = { ...response, query_status: status, results: status.complete ? ((status.results as { results?: unknown })?.results ?? status.results) : response.results };
  }
  return response;
}
