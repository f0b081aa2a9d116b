// The request that "Try it" sends, the same as a curl command, and its response.
import { type ApiReference, BASE_ADDRESS, type Entry, type Media, type Parameter } from "./document";
import { followReference } from "./words";

/** What the form contains. */
export interface FormValues {
  /** By place and name, as `nameOf` writes it. */
  parameters: Record<string, string>;
  mediaType: string;
  body: string;
  key: string;
}

export interface ApiRequest {
  method: string;
  address: string;
  headers: Record<string, string>;
  body: string | undefined;
}

export interface ApiResult {
  status: number;
  statusText: string;
  milliseconds: number;
  bytes: number;
  mediaType: string;
  text: string;
  isCut: boolean;
}

/** Longer responses are cut: a browser needs seconds to lay out a text of megabytes. */
const SHOWN_MAX = 100_000;

export const nameOf = (parameter: Parameter) => `${parameter.in} ${parameter.name}`;

/** The example of a body as text: that of the media type, or that of its schema; empty without one. */
export function findExample(api: ApiReference, { example, schema }: Media): string {
  const examples = schema === undefined ? undefined : (followReference(api, schema).schema.examples as unknown[] | undefined);
  const found = example ?? examples?.[0];
  if (found === undefined) return "";
  return typeof found === "string" ? found : JSON.stringify(found, null, 2);
}

export function buildRequest({ method, path, operation, takesKey }: Entry, values: FormValues): ApiRequest {
  const headers: Record<string, string> = {};
  let filled = path;
  const query = new URLSearchParams();
  for (const parameter of operation.parameters ?? []) {
    const value = values.parameters[nameOf(parameter)] ?? "";
    // `@current` stays readable: paths may contain an at sign.
    if (parameter.in === "path") filled = filled.replace(`{${parameter.name}}`, encodeURIComponent(value).replaceAll("%40", "@"));
    else if (value !== "" && parameter.in === "query") query.append(parameter.name, value);
    else if (value !== "" && parameter.in === "header") headers[parameter.name] = value;
  }
  if (takesKey && values.key !== "") headers.Authorization = `Bearer ${values.key}`;
  const hasBody = operation.requestBody !== undefined && values.body.trim() !== "";
  if (hasBody) headers["Content-Type"] = values.mediaType;
  const search = query.size > 0 ? `?${query}` : "";
  return { method, address: new URL(filled.slice(1) + search, BASE_ADDRESS).href, headers, body: hasBody ? values.body : undefined };
}

const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

/** The request as a command, with `$PENNON_KEY` instead of the key. */
export function writeCurl(request: ApiRequest, takesKey: boolean): string {
  const { Authorization: _, ...headers } = request.headers;
  const parts = [`curl ${request.method === "GET" ? "" : `-X ${request.method} `}${quote(request.address)}`];
  if (takesKey) parts.push(`-H "Authorization: Bearer $PENNON_KEY"`);
  for (const [name, value] of Object.entries(headers)) parts.push(`-H ${quote(`${name}: ${value}`)}`);
  if (request.body !== undefined) parts.push(`--data-raw ${quote(request.body)}`);
  return parts.join(" \\\n  ");
}

function indentJson(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export async function sendRequest({ method, address, headers, body }: ApiRequest, signal: AbortSignal): Promise<ApiResult> {
  const begin = performance.now();
  const response = await fetch(address, { method, headers, body, signal, credentials: "omit", cache: "no-store", referrerPolicy: "no-referrer" });
  const bytes = await response.arrayBuffer();
  const milliseconds = performance.now() - begin;
  const mediaType = (response.headers.get("Content-Type") ?? "").split(";")[0];
  const decoded = new TextDecoder().decode(bytes);
  const text = mediaType.endsWith("json") ? indentJson(decoded) : decoded;
  return {
    status: response.status, statusText: response.statusText, milliseconds, bytes: bytes.byteLength, mediaType,
    text: text.slice(0, SHOWN_MAX), isCut: text.length > SHOWN_MAX,
  };
}
