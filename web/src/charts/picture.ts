// The picture of a query's result: a chart, a text alternative, a legend, and a table with the same numbers.
import type { Size, SvgNode } from "./svg";

/** How to list the persons behind a number: a link of the API, or a body for one of its lists. */
export interface PeopleRequest {
  title: string;
  link?: string;
  list?: "trends" | "path";
  body?: Record<string, unknown>;
}

export interface Cell {
  text: string;
  people?: PeopleRequest;
}

export interface Picture {
  /** The text alternative of the chart: one or two sentences. */
  summary: string;
  /** Null where the table is the whole picture. */
  draw: ((size: Size) => SvgNode) | null;
  /** A single number in place of a chart. */
  total?: string;
  legend: { name: string; color: string; isEarlier?: boolean }[];
  table: { columns: string[]; rows: Cell[][] };
  /** The persons behind the mark of the chart with these data attributes. */
  findPeople?: (mark: Record<string, string | undefined>) => PeopleRequest | undefined;
}

/** The fields of a query node that pictures depend on. */
export interface PictureQuery {
  kind: string;
  [name: string]: unknown;
}

const COUNT = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
export const formatNumber = (value: number) => COUNT.format(value);

const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
export const formatTick = (value: number) => (Math.abs(value) < 10_000 ? COUNT.format(value) : COMPACT.format(value));

export const formatShare = (part: number, whole: number) => (whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : "–");

/** `75` seconds are `1m 15s`: the two largest units. */
export function formatSeconds(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 60) return `${Math.round(seconds)}s`;
  const units: [string, number][] = [["d", 86_400], ["h", 3600], ["m", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => seconds >= size);
  const rest = Math.round(seconds) % units[first][1];
  const [unit, size] = units[first + 1] ?? ["s", 1];
  const count = Math.floor(rest / size);
  return `${Math.floor(Math.round(seconds) / units[first][1])}${units[first][0]}${count > 0 ? ` ${count}${unit}` : ""}`;
}

/** An object of the query, or an empty one. */
export function readObject(query: PictureQuery, name: string): Record<string, unknown> {
  const value = query[name];
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}
