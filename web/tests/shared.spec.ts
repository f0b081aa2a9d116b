// Shared pages in a browser: with and without scripts, in both themes and widths; charts of each kind, an SVG file, first paint.
import AxeBuilder from "@axe-core/playwright";
import { type Browser, type BrowserContextOptions, type Page, expect, test as base } from "@playwright/test";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { NUMBERS, Server } from "./server";

const SERIES = [{ kind: "EventsNode", event: "view" }, { kind: "EventsNode", event: "cart" }];
const BREAKDOWN = { breakdown: "platform", breakdown_type: "event" };
const show = (display: string) => ({ kind: "TrendsQuery", series: SERIES, breakdownFilter: BREAKDOWN, trendsFilter: { display } });

/** Each kind and display; `null` where the table is the whole picture. */
const KINDS: [string, object, string | null][] = [
  ["lines", show("ActionsLineGraph"), ".line"], ["areas", show("ActionsAreaGraph"), ".area"], ["bars", show("ActionsUnstackedBar"), ".bar"],
  ["stacked bars", show("ActionsBar"), ".bar"], ["pie", show("ActionsPie"), "path.bar"], ["totals", show("ActionsBarValue"), ".bar"],
  ["world map", { kind: "TrendsQuery", series: SERIES.slice(0, 1), trendsFilter: { display: "WorldMap" }, breakdownFilter: { breakdown: "country", breakdown_type: "person" } }, ".bar"],
  ["table", show("ActionsTable"), null],
  ["number", { kind: "TrendsQuery", series: SERIES.slice(0, 1), trendsFilter: { display: "BoldNumber" } }, null],
  ["steps", { kind: "FunnelsQuery", series: SERIES }, ".step"],
  ["conversion by period", { kind: "FunnelsQuery", series: SERIES, funnelsFilter: { funnelVizType: "trends" } }, ".line"],
  ["time to convert", { kind: "FunnelsQuery", series: SERIES, funnelsFilter: { funnelVizType: "time_to_convert" } }, ".bar"],
  ["retention", { kind: "RetentionQuery", retentionFilter: { totalIntervals: 8, targetEntity: { id: "view", type: "events" }, returningEntity: { id: "cart", type: "events" } } }, ".cell"],
  ["lifecycle", { kind: "LifecycleQuery", series: SERIES.slice(0, 1) }, ".bar"],
  ["stickiness", { kind: "StickinessQuery", series: SERIES }, ".bar"],
  ["paths", { kind: "PathsQuery", pathsFilter: { includeEventTypes: ["custom_event"] } }, ".ribbon"],
];

interface Shared {
  server: Server;
  /** The address of the page of a dashboard with an insight of each kind. */
  address: string;
  /** The address of the page of a single insight. */
  single: string;
}

const test = base.extend<object, { shared: Shared }>({
  shared: [
    async ({}, use) => {
      const server = await Server.start();
      const dashboard = await server.request<{ id: number }>("POST", "dashboards/", { name: "Shop numbers", description: "What the shop sold" });
      const insights: number[] = [];
      for (const [name, source] of KINDS) {
        const { id } = await server.request<{ id: number }>("POST", "insights/", { name, saved: true, dashboards: [dashboard.id], query: { kind: "InsightVizNode", source } });
        insights.push(id);
      }
      const share = async (record: string) => {
        const { access_token } = await server.request<{ access_token: string }>("PATCH", `${record}/sharing/`, { enabled: true });
        return `${server.address}shared/${access_token}`;
      };
      await use({ server, address: await share(`dashboards/${dashboard.id}`), single: await share(`insights/${insights[0]}`) });
      await server.stop();
    },
    { scope: "worker", timeout: 90_000 },
  ],
});

/** Opens the page in a new context, and expects no message of the browser and no request to another host. */
async function visit(browser: Browser, { server, address }: Shared, options: BrowserContextOptions, look: (page: Page) => Promise<void>): Promise<void> {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const problems: string[] = [];
  page.on("request", (request) => {
    if (!request.url().startsWith(server.address) && !request.url().startsWith("blob:")) problems.push(`request to ${request.url()}`);
  });
  page.on("pageerror", (error) => problems.push(`exception: ${error.message}`));
  page.on("console", (message) => problems.push(`${message.type()}: ${message.text()}`));
  await page.goto(address);
  await look(page);
  await context.close();
  expect(problems).toEqual([]);
}

const section = (page: Page, name: string) => page.locator("section", { has: page.getByRole("heading", { name, exact: true }) });

test("a page has a table of each kind, also without scripts", async ({ browser, shared }) => {
  await visit(browser, shared, { javaScriptEnabled: false, viewport: { width: 390, height: 844 } }, async (page) => {
    await expect(page.getByRole("heading", { name: "Shop numbers", level: 1 })).toBeVisible();
    await expect(page.getByRole("heading", { level: 2 })).toHaveText(KINDS.map(([name]) => name));
    await expect(page.getByRole("table")).toHaveCount(KINDS.length);
    await expect(section(page, "number").getByRole("cell")).toHaveText([String(NUMBERS.view)]);
    await expect(section(page, "steps").getByRole("row", { name: /cart/ })).toContainText(String(NUMBERS.cart));
    const file = page.waitForEvent("download");
    await section(page, "number").getByRole("link", { name: "CSV" }).click();
    expect(readFileSync(await (await file).path(), "utf8")).toBe(`series,value\r\nview,${NUMBERS.view}\r\n`);
  });
});

test("a chart is drawn for each kind, and saved as an SVG file", async ({ browser, shared }) => {
  await visit(browser, shared, {}, async (page) => {
    for (const [name, , mark] of KINDS) {
      const place = section(page, name);
      if (mark === null) await expect(place.locator("svg"), name).toHaveCount(0);
      else await expect(place.locator(`svg ${mark}`).first(), name).toBeAttached();
    }
    await expect(section(page, "number").locator(".total")).toContainText(String(NUMBERS.view));
    expect(await section(page, "steps").locator("svg title").allTextContents()).toContain(`${NUMBERS.cart} of ${NUMBERS.view} (50.0 %); 50.0 % of the step before`);
    const file = page.waitForEvent("download");
    await section(page, "lines").getByRole("button", { name: "Save as SVG" }).click();
    const download = await file;
    expect(download.suggestedFilename()).toBe("lines.svg");
    const text = readFileSync(await download.path(), "utf8");
    expect(text).toMatch(/^<svg [^>]*xmlns="http:\/\/www.w3.org\/2000\/svg"/);
    expect(text).toContain("<style>");
    expect(text).not.toContain("var(");
  });
});

for (const colorScheme of ["light", "dark"] as const) {
  for (const width of [1280, 390]) {
    test(`axe finds nothing serious and the page does not scroll sideways: ${colorScheme}, ${width} px`, async ({ browser, shared }) => {
      await visit(browser, shared, { colorScheme, viewport: { width, height: 844 } }, async (page) => {
        await expect(page.locator("svg")).toHaveCount(KINDS.filter(([, , mark]) => mark !== null).length);
        expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)).toBeLessThanOrEqual(0);
        const { violations } = await new AxeBuilder({ page }).options({ resultTypes: ["violations"] }).analyze();
        const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
        expect(serious.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html.slice(0, 160)).join(" | ")}`)).toEqual([]);
        if (process.env.SCREENSHOTS) {
          await page.screenshot({ path: `${process.env.SCREENSHOTS}/shared-${colorScheme}-${width}.png`, fullPage: true });
          await page.screenshot({ path: `${process.env.SCREENSHOTS}/shared-${colorScheme}-${width}-top.png` });
        }
      });
    });
  }
}

test("a frame of another page shows the embedded page, and not the shared one", async ({ page, shared }) => {
  const embedded = shared.address.replace("/shared/", "/embedded/");
  const other = createServer((_, response) => {
    response.writeHead(200, { "Content-Type": "text/html" }).end(`<iframe src="${embedded}"></iframe><iframe src="${shared.address}"></iframe>`);
  });
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
  await page.goto(`http://127.0.0.1:${(other.address() as AddressInfo).port}/`);
  const [first, second] = [page.frameLocator("iframe").first(), page.frameLocator("iframe").last()];
  await expect(first.getByRole("heading", { name: "Shop numbers" })).toBeVisible();
  await expect(second.getByRole("heading", { name: "Shop numbers" })).toHaveCount(0);
  other.close();
});

for (const [name, of] of [["an insight", "single"], [`a dashboard of ${KINDS.length} insights`, "address"]] as const) {
  test(`the first paint of ${name} at a quarter of the processor's speed`, async ({ browser, shared }) => {
    await visit(browser, { ...shared, address: shared[of] }, {}, async (page) => {
      const client = await page.context().newCDPSession(page);
      await client.send("Emulation.setCPUThrottlingRate", { rate: 4 });
      const paints: string[] = [];
      for (let round = 0; round < 5; round += 1) {
        // As at the first visit: nothing is cached.
        await client.send("Network.clearBrowserCache");
        await page.reload();
        await expect(page.locator("svg").first()).toBeVisible();
        const { paint, response } = await page.evaluate(() => ({
          paint: performance.getEntriesByName("first-contentful-paint")[0].startTime,
          response: (performance.getEntriesByType("navigation")[0] as PerformanceNavigationTiming).responseStart,
        }));
        expect(paint).toBeGreaterThan(0);
        paints.push(`${Math.round(paint)} (response ${Math.round(response)})`);
      }
      console.log(`first paint of ${name}: ${paints.join(", ")} ms`);
    });
  });
}
