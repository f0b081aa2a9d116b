// All views: accessibility, narrow windows, size. The first event.
import AxeBuilder from "@axe-core/playwright";
import type { ConsolePage } from "./fixtures";
import { expect, test } from "./fixtures";
import { KEYS, TOKENS } from "./server";

async function prepareRoutes(console: ConsolePage): Promise<string[]> {
  const { server } = console;
  const found = await server.request<{ results: { id: number }[] }>("GET", "feature_flags/?search=views-flag");
  const flag = found.results[0] ?? (await server.request<{ id: number }>("POST", "feature_flags/", {
    key: "views-flag", tags: ["long-name"],
    filters: {
      groups: [{ properties: [{ key: "country", value: ["DE"], operator: "exact", type: "person" }], rollout_percentage: 20 }],
      multivariate: { variants: [{ key: "a", rollout_percentage: 50 }, { key: "b", rollout_percentage: 50 }] },
    },
  }));
  const dashboard = await server.request<{ id: number }>("POST", "dashboards/", { name: "Views" });
  const series = [{ kind: "EventsNode", event: "view" }, { kind: "EventsNode", event: "cart" }];
  const queries = [
    { kind: "TrendsQuery", series, breakdownFilter: { breakdown: "platform", breakdown_type: "event" } }, { kind: "FunnelsQuery", series },
    { kind: "RetentionQuery", retentionFilter: { totalIntervals: 8 } }, { kind: "LifecycleQuery", series: series.slice(0, 1) }, { kind: "StickinessQuery", series },
    { kind: "PathsQuery", pathsFilter: { includeEventTypes: ["custom_event"] } },
  ];
  const insights: { short_id: string }[] = [];
  for (const source of queries) {
    insights.push(await server.request("POST", "insights/", { name: `View of ${source.kind}`, saved: true, dashboards: [dashboard.id], query: { kind: "InsightVizNode", source } }));
  }
  const people = await server.request<{ results: { id: string }[] }>("GET", "persons/?limit=1");
  return [
    "#/", "#/flags", "#/flags/new", `#/flags/${flag.id}`, `#/flags/${flag.id}?section=usage`, `#/flags/${flag.id}?section=roles`, "#/insights", ...insights.map(({ short_id }) => `#/insights/${short_id}`),
    "#/dashboards", `#/dashboards/${dashboard.id}`, "#/live", "#/persons", `#/persons/${people.results[0].id}`, "#/activity", "#/keys",
  ];
}

async function settle(console: ConsolePage, route: string): Promise<void> {
  await console.go(route);
  await console.page.waitForLoadState("networkidle");
  await expect(console.page.locator("main .loading")).toHaveCount(0);
}

const MODES = [
  { colorScheme: "light", width: 1280, tag: "" }, { colorScheme: "dark", width: 390, tag: " @long" },
  { colorScheme: "dark", width: 1280, tag: " @long" }, { colorScheme: "light", width: 390, tag: " @long" },
] as const;

test("nothing scrolls sideways at 390 px", async ({ console, page }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  const routes = await prepareRoutes(console);
  await console.open();
  for (const route of routes) {
    await settle(console, route);
    expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth), route).toBeLessThanOrEqual(0);
  }
});

for (const { colorScheme, width, tag } of MODES) {
  test(`axe finds nothing serious: ${colorScheme}, ${width} px${tag}`, async ({ console, page }) => {
    test.setTimeout(300_000);
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    await page.setViewportSize({ width, height: 844 });
    // The short pass has one list and one record of each view.
    const kindOf = (route: string) => route.replace(/\/\d+|\/\w{8}$|\/[\w-]{36}$/, "/record");
    const routes = (await prepareRoutes(console)).filter((route, index, all) => tag !== "" || all.findIndex((other) => kindOf(other) === kindOf(route)) === index);
    await console.open();
    for (const route of routes) {
      await settle(console, route);
      const { violations } = await new AxeBuilder({ page }).options({ resultTypes: ["violations"] }).analyze();
      const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
      expect(serious.map(({ id, nodes }) => `${route} ${id}: ${nodes.map((node) => node.html.slice(0, 160)).join(" | ")}`)).toEqual([]);
    }
  });
}

test("the theme switch overrides the system's", async ({ console, page }) => {
  await page.emulateMedia({ colorScheme: "light" });
  await console.open();
  const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const light = await ground();
  await page.getByLabel("Theme").selectOption("dark");
  expect(await ground()).not.toBe(light);
  await page.reload();
  await expect(page.getByLabel("Theme")).toHaveValue("dark");
  expect(await ground()).not.toBe(light);
});

test("the first event turns the start page green", async ({ console, page, server }) => {
  await page.goto(`${server.address}#key=${KEYS.full}`);
  await page.getByRole("button", { name: /Empty/ }).click();
  expect(console.page).toBe(page);
  const status = page.locator(".waiting");
  await expect(status).toHaveText("Waiting for an event …");
  const snippet = await page.getByLabel("First event with curl").textContent();
  expect(snippet).toContain(TOKENS.empty);
  for (const sdk of ["Browser", "Node.js", "Python", "Go", "Ruby"]) {
    await page.getByRole("button", { name: sdk, exact: true }).click();
    await expect(page.getByLabel(`First event with ${sdk}`)).toContainText(TOKENS.empty);
  }
  await server.capture(TOKENS.empty, [{ event: "first event", distinct_id: "ada" }]);
  await expect(status).toContainText("first event of ada arrived.");
  await expect(status).toHaveClass(/arrived/);
});

test("new events arrive in the list of live events", async ({ console, page, server }) => {
  await console.open("#/live");
  await expect(page.getByRole("row").nth(1)).toBeVisible();
  await server.capture(TOKENS.shop, [{ event: "doorbell", distinct_id: "person-00" }]);
  await expect(page.getByRole("row", { name: /doorbell/ })).toBeVisible();
  await page.getByRole("button", { name: /doorbell/ }).click();
  await expect(page.getByText("No properties.").or(page.getByRole("table", { name: "Properties of doorbell" }))).toBeVisible();
});

test("the page and everything that it loads is at most 120 kB, and is painted fast @long", async ({ console, page, server }) => {
  const client = await page.context().newCDPSession(page);
  await client.send("Emulation.setCPUThrottlingRate", { rate: 4 });
  let bytes = 0;
  await client.send("Network.enable");
  client.on("Network.loadingFinished", (event) => { bytes += event.encodedDataLength; });
  await page.goto(server.address);
  await expect(page.getByLabel("Personal API key")).toBeVisible();
  expect(bytes).toBeGreaterThan(10_000);
  expect(bytes).toBeLessThanOrEqual(120_000);
  const painted = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
  process.stdout.write(`    ${bytes} bytes, first paint after ${Math.round(painted)} ms at a quarter of the speed\n`);
  expect(console.page).toBe(page);
});
