// Rebuilds dist/ in a temporary folder, and compares it with the committed bytes; then checks the sizes of the console, of a
// shared page and of the API reference.
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { buildPages } from "./build.mjs";

const CONSOLE_MAX = 120_000;
/** A shared page has 40,000 bytes; 2,000 of them are for its own HTML, without data (a unit test of `insights` checks those). */
const SHARED_MAX = 38_000;
const REFERENCE_MAX = 45_000;
const folder = dirname(fileURLToPath(import.meta.url));

/** Maps the relative path of each file below `root` to its bytes. */
function readFolder(root, below = root) {
  const files = new Map();
  for (const name of readdirSync(below).sort()) {
    const path = join(below, name);
    if (statSync(path).isDirectory()) for (const [inner, bytes] of readFolder(root, path)) files.set(inner, bytes);
    else files.set(relative(root, path), readFileSync(path));
  }
  return files;
}

const digest = (bytes) => createHash("sha256").update(bytes).digest("hex");
const built = mkdtempSync(join(tmpdir(), "pennon-console-"));
let findings = 0;
try {
  await buildPages(built);
  const expected = readFolder(built);
  const committed = readFolder(join(folder, "dist"));
  for (const name of new Set([...expected.keys(), ...committed.keys()])) {
    const [left, right] = [expected.get(name), committed.get(name)];
    if (left && right && digest(left) === digest(right)) continue;
    console.error(`web/dist/${name}: ${!right ? "is missing" : !left ? "is not built from these sources" : "differs"}`);
    findings += 1;
  }
  if (findings > 0) console.error("Run in web/: npm ci && npm run build, and commit web/dist.");
  const totals = { console: 0, "shared page": 0, "API reference": 0 };
  const pageOf = (name) => (/^(assets\/)?shared\b/.test(name) ? "shared page" : /^(assets\/)?reference\b/.test(name) ? "API reference" : "console");
  for (const [name, bytes] of expected) {
    const size = gzipSync(bytes, { level: 9 }).length;
    // Every page loads the icon.
    for (const page of name.startsWith("assets/icon") ? Object.keys(totals) : [pageOf(name)]) totals[page] += size;
    console.log(`${name.padEnd(40)} ${String(bytes.length).padStart(8)} bytes ${String(size).padStart(8)} gzipped`);
  }
  for (const [name, max] of [["console", CONSOLE_MAX], ["shared page", SHARED_MAX], ["API reference", REFERENCE_MAX]]) {
    console.log(`${name.padEnd(40)} ${"".padStart(14)} ${String(totals[name]).padStart(8)} gzipped, at most ${max}`);
    if (totals[name] <= max) continue;
    console.error(`The ${name} is larger than ${max} bytes.`);
    findings += 1;
  }
  for (const text of [...expected.values()].map(String)) {
    for (const [address] of text.matchAll(/https?:\/\/[\w.-]+/g)) {
      if (["http://www.w3.org", "http://127.0.0.1"].some((known) => address.startsWith(known))) continue;
      console.error(`A page contains the address ${address}.`);
      findings += 1;
    }
  }
} finally {
  rmSync(built, { recursive: true, force: true });
}
process.exit(findings > 0 ? 1 : 0);
