// Measures the time from an archive of the program to a picture in the browser: unpack, start, open the printed address, first chart.
//
//   node first_picture.mjs ARCHIVE.tar.gz [SCREENSHOT.png]    an archive of packaging/build_archive.sh
//
// Fails above ten seconds. Chromium: the variable CHROMIUM, or where Debian installs it.
import { chromium } from "@playwright/test";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const SECONDS_MAX = 10;

/** The address with the key that the first start prints. */
function readAddress(server) {
  return new Promise((resolve, reject) => {
    server.once("exit", (status) => reject(new Error(`the program ended with status ${status}`)));
    createInterface(server.stdout).on("line", (line) => {
      const address = /http:\S+#key=\S+/.exec(line);
      if (address) resolve(address[0]);
    });
  });
}

const [archive, screenshot] = process.argv.slice(2);
if (!archive) throw new Error("usage: node first_picture.mjs ARCHIVE.tar.gz [SCREENSHOT.png]");
const folder = mkdtempSync(join(tmpdir(), "pennon-first-"));
const begin = performance.now();
const since = () => (performance.now() - begin) / 1000;
let server;
let browser;
try {
  const unpacked = execFileSync("tar", ["-xvzf", archive, "-C", folder], { encoding: "utf8" }).split("\n");
  const program = unpacked.find((path) => path === "pennon" || path.endsWith("/pennon"));
  if (!program) throw new Error(`${archive} contains no program named pennon`);
  const unpackedAfter = since();
  server = spawn(join(folder, program), ["serve", "--port", "0", "--data", join(folder, "data")], { stdio: ["ignore", "pipe", "inherit"] });
  const address = await readAddress(server);
  const started = since();
  const executablePath = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/google-chrome-stable"].find((path) => path && existsSync(path));
  browser = await chromium.launch({ executablePath, args: process.getuid?.() === 0 ? ["--no-sandbox"] : [] });
  const page = await browser.newPage();
  await page.goto(address);
  await page.locator("svg.chart").first().waitFor();
  const drawn = since();
  if (screenshot) await page.screenshot({ path: screenshot });
  console.log(`unpacked after ${unpackedAfter.toFixed(1)} s, started after ${started.toFixed(1)} s, first chart after ${drawn.toFixed(1)} s`);
  if (drawn > SECONDS_MAX) throw new Error(`more than ${SECONDS_MAX} s`);
} finally {
  await browser?.close();
  server?.kill("SIGINT");
  if (server && server.exitCode === null) await new Promise((resolve) => server.once("exit", resolve));
  rmSync(folder, { recursive: true, force: true });
}
