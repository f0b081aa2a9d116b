// Requests to the API of the address that served the console, and to no other host.
import { signal } from "@preact/signals";

/** The personal API key of this tab. */
export const apiKey = signal<string | null>(null);
/** Raised when the key stopped working during a session; the text says why. */
export const keyRejected = signal<string | null>(null);

const TIMES_BUSY = 3;
const LONGEST_WAIT_SECONDS = 10;

/** A response with an error status, or no response at all (status 0). */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string | null;
  readonly field: string | null;

  constructor(status: number, detail: string, code: string | null = null, field: string | null = null) {
    super(detail);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.field = field;
  }
}

export type QueryValue = string | number | boolean | null | undefined;

export interface RequestOptions {
  query?: Record<string, QueryValue>;
  body?: unknown;
  signal?: AbortSignal;
  /** Another key than that of the session: for the sign-in form. */
  key?: string;
}

/** The address below which the API is, with a slash: also correct below a gateway's stage prefix. */
export function baseAddress(): string {
  return new URL(".", location.href.split(/[?#]/)[0]).href;
}

function buildAddress(path: string, query: Record<string, QueryValue> = {}): string {
  const address = new URL(path.replace(/^\//, ""), baseAddress());
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") address.searchParams.set(name, String(value));
  }
  return address.href;
}

function wait(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

async function readError(response: Response): Promise<ApiError> {
  const text = await response.text();
  try {
    const body = JSON.parse(text);
    return new ApiError(response.status, String(body.detail ?? body.error ?? text), body.code ?? null, body.attr ?? null);
  } catch {
    return new ApiError(response.status, text.slice(0, 300) || `The server returned status ${response.status}.`);
  }
}

/** Sends a request and returns the body of the response. Reads are retried while the server is busy (503, 429). */
export async function request<T>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  const key = options.key ?? apiKey.value;
  if (key) headers.Authorization = `Bearer ${key}`;
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  const isRead = method === "GET" || path.endsWith("/query/") || path.endsWith("/user_blast_radius/");
  for (let attempt = 1; ; attempt += 1) {
    let response: Response;
    try {
      response = await fetch(buildAddress(path, options.query), {
        method,
        headers,
        body: options.body === undefined ? undefined : JSON.stringify(options.body),
        signal: options.signal,
        credentials: "omit",
        cache: "no-store",
        referrerPolicy: "no-referrer",
        redirect: "error",
      });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new ApiError(0, `No response from ${baseAddress()}. Check that the server runs, then retry.`);
    }
    if (response.ok) return (response.status === 204 ? null : await response.json()) as T;
    const isBusy = response.status === 503 || response.status === 429;
    if (isBusy && isRead && attempt < TIMES_BUSY) {
      const seconds = Number(response.headers.get("Retry-After")) || 1;
      if (seconds <= LONGEST_WAIT_SECONDS) {
        await wait(seconds, options.signal);
        continue;
      }
    }
    const error = await readError(response);
    if (error.status === 401 && !options.key) keyRejected.value = error.message;
    throw error;
  }
}

/** Sends a request for a link that the API returned: an absolute address of this server, or a path. */
export function follow<T>(link: string, options: RequestOptions = {}): Promise<T> {
  const target = new URL(link, location.href);
  const base = new URL(baseAddress());
  const path = target.pathname.startsWith(base.pathname) ? target.pathname.slice(base.pathname.length) : target.pathname;
  const query = { ...Object.fromEntries(target.searchParams), ...options.query };
  return request("GET", path, { ...options, query });
}
