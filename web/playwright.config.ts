// The browser tests. They start their own Pennon on a free port, with a data directory of their own.
//
//   npm test            the short pass
//   npm run test:long   everything, also tests with the tag @long
import { defineConfig } from "@playwright/test";
import { existsSync } from "node:fs";

const CHROMIUMS = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome-stable"];

export default defineConfig({
  testDir: "tests",
  fullyParallel: false,
  workers: 1,
  forbidOnly: true,
  retries: 0,
  timeout: 45_000,
  expect: { timeout: 10_000 },
  reporter: [["list"]],
  use: {
    headless: true,
    viewport: { width: 1280, height: 860 },
    actionTimeout: 10_000,
    launchOptions: {
      executablePath: CHROMIUMS.find((path) => path && existsSync(path)),
      // Chromium refuses its sandbox to root.
      args: process.getuid?.() === 0 ? ["--no-sandbox"] : [],
    },
  },
});
