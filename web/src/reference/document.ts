// The OpenAPI document, as far as the page shows it, and an index of its operations.
import { createContext } from "preact";

export type Schema = boolean | SchemaObject;

export interface SchemaObject {
  $ref?: string;
  type?: string | string[];
  description?: string;
  enum?: unknown[];
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  [keyword: string]: unknown;
}

export interface Parameter {
  name: string;
  in: string;
  required?: boolean;
  deprecated?: boolean;
  description?: string;
  schema?: Schema;
}

export interface Media {
  schema?: Schema;
  example?: unknown;
}

interface Link {
  operationId?: string;
  parameters?: Record<string, unknown>;
}

export interface ApiResponse {
  description?: string;
  headers?: Record<string, { $ref?: string; description?: string; schema?: Schema }>;
  content?: Record<string, Media>;
  links?: Record<string, Link>;
  "x-may-be-empty"?: boolean;
}

export interface Operation {
  operationId: string;
  tags?: string[];
  summary?: string;
  description?: string;
  deprecated?: boolean;
  security?: object[];
  parameters?: Parameter[];
  requestBody?: { required?: boolean; description?: string; content: Record<string, Media> };
  responses: Record<string, ApiResponse>;
}

export interface ApiDocument {
  info: { title: string; version: string; description?: string };
  tags?: { name: string; description?: string }[];
  security?: object[];
  paths: Record<string, Record<string, Operation>>;
}

/** An operation with its place in the document. */
export interface Entry {
  id: string;
  method: string;
  path: string;
  tag: string;
  summary: string;
  operation: Operation;
  /** Without a security requirement the operation takes no personal API key. */
  takesKey: boolean;
  searchText: string;
}

export interface TagEntries {
  name: string;
  description?: string;
  entries: Entry[];
}

/** The other members of a path item are not operations. */
const METHODS = new Set(["get", "post", "put", "patch", "delete", "head", "options", "trace"]);

function createEntry(document: ApiDocument, path: string, method: string, operation: Operation): Entry {
  const { operationId: id, summary = id } = operation;
  const tag = operation.tags?.[0] ?? "Other";
  const searchText = [summary, path, id, tag, method].join("\n").toLowerCase();
  const takesKey = (operation.security ?? document.security ?? []).length > 0;
  return { id, method: method.toUpperCase(), path, tag, summary, operation, takesKey, searchText };
}

/** The document with its operations by tag, in the order of its `tags`, and by id. */
export class ApiReference {
  readonly document: ApiDocument;
  readonly tags: TagEntries[];
  readonly entries: Map<string, Entry>;

  constructor(document: ApiDocument) {
    this.document = document;
    const entries = Object.entries(document.paths).flatMap(([path, item]) =>
      Object.keys(item).filter((member) => METHODS.has(member)).map((method) => createEntry(document, path, method, item[method])));
    this.entries = new Map(entries.map((entry) => [entry.id, entry]));
    const tags = new Map<string, TagEntries>((document.tags ?? []).map((tag) => [tag.name, { ...tag, entries: [] }]));
    for (const entry of entries) {
      if (!tags.has(entry.tag)) tags.set(entry.tag, { name: entry.tag, entries: [] });
      tags.get(entry.tag)!.entries.push(entry);
    }
    this.tags = [...tags.values()].filter(({ entries }) => entries.length > 0);
  }

  /** What a reference such as `#/components/schemas/Person` refers to. */
  resolve<T>(reference: string): T | undefined {
    const names = reference.replace(/^#\//, "").split("/").map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"));
    return names.reduce<unknown>((value, name) => (value as Record<string, unknown> | undefined)?.[name], this.document) as T | undefined;
  }

  /** The tags with the operations that contain every word of `text`; all of them without a text. */
  search(text: string): TagEntries[] {
    const words = text.toLowerCase().split(/\s+/).filter((word) => word !== "");
    if (words.length === 0) return this.tags;
    const matches = ({ searchText }: Entry) => words.every((word) => searchText.includes(word));
    return this.tags.map((tag) => ({ ...tag, entries: tag.entries.filter(matches) })).filter(({ entries }) => entries.length > 0);
  }
}

export const Reference = createContext<ApiReference>(null!);

/** The address below which the API is, with a slash: assets are below it, also behind a gateway's stage prefix. */
export const BASE_ADDRESS = new URL("..", import.meta.url).href;
