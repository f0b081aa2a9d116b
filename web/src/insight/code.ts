// The same query for other clients: curl, Python and JSON.
import { baseAddress } from "../api/client";
import { projectPath } from "../session";

/** Single quotes end a quoted text of the shell. */
export const quoteForShell = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

export function writeCurl(query: object): string {
  return [
    `curl -s ${quoteForShell(`${baseAddress()}${projectPath.value}/query/`)} \\`,
    `  -H "Authorization: Bearer $PENNON_KEY" -H 'Content-Type: application/json' \\`,
    `  -d ${quoteForShell(JSON.stringify({ query }))}`,
  ].join("\n");
}

/** A JSON value as a literal of Python. */
export function writePythonValue(value: unknown, indent = ""): string {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const inner = `${indent}    `;
  const parts = Array.isArray(value)
    ? value.map((one) => writePythonValue(one, inner))
    : Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${writePythonValue(one, inner)}`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const short = `${open}${parts.join(", ")}${close}`;
  return short.length + indent.length <= 88 && !short.includes("\n") ? short : `${open}\n${parts.map((part) => `${inner}${part},\n`).join("")}${indent}${close}`;
}

export function writePython(query: object): string {
  return `import json, os, urllib.request

query = ${writePythonValue(query)}
request = urllib.request.Request(
    ${JSON.stringify(`${baseAddress()}${projectPath.value}/query/`)},
    json.dumps({"query": query}).encode(),
    {"Authorization": "Bearer " + os.environ["PENNON_KEY"], "Content-Type": "application/json"},
)
with urllib.request.urlopen(request) as response:
    print(json.load(response)["results"])
`;
}

export const writeJson = (query: object) => JSON.stringify({ query }, null, 2);
