// Times and JSON values as people read them. Numbers and durations: charts/picture.ts.
const DATE = new Intl.DateTimeFormat("en", { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false });

export function formatTime(time: string | null | undefined): string {
  if (!time) return "never";
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? time : DATE.format(date);
}

export function formatAgo(time: string | null | undefined, now = Date.now()): string {
  if (!time) return "never";
  const seconds = (now - new Date(time).getTime()) / 1000;
  if (Number.isNaN(seconds)) return time;
  if (seconds < 60) return "just now";
  const [count, unit] = seconds < 3600 ? [seconds / 60, "min"] : seconds < 86_400 ? [seconds / 3600, "h"] : [seconds / 86_400, "d"];
  return `${Math.floor(count)} ${unit} ago`;
}

/** A JSON value in one line; texts without quotes. */
export function formatValue(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "");
}
