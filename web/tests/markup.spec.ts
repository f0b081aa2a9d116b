// Nothing of an event, a flag or any other record becomes markup.
import { expect, test } from "./fixtures";

const NAME = `<script>window.injected = 1</script><img src=x onerror="window.injected = 1">`;

test("markup in every name is shown as text", async ({ console, page, server }) => {
  await server.capture("phc_shop", [
    { event: NAME, distinct_id: NAME, properties: { [NAME]: NAME, $set: { name: NAME, [NAME]: NAME } } },
    { event: "purchase", distinct_id: NAME, properties: { platform: NAME } },
  ]);
  const flag = await server.request<{ id: number }>("POST", "feature_flags/", {
    key: "markup", name: NAME, tags: [NAME],
    filters: {
      groups: [{ properties: [{ key: NAME, value: [NAME], operator: "exact", type: "person" }], rollout_percentage: 100 }],
      multivariate: { variants: [{ key: NAME, name: NAME, rollout_percentage: 100 }] }, payloads: { [NAME]: JSON.stringify(NAME) },
    },
  });
  await server.request("PATCH", `feature_flags/${flag.id}/`, { name: `${NAME}!` });
  const dashboard = await server.request<{ id: number }>("POST", "dashboards/", { name: NAME, description: NAME, tags: [NAME] });
  const series = [{ kind: "EventsNode", event: NAME, name: NAME, custom_name: NAME }];
  const insights: { short_id: string }[] = [];
  const queries = [
    { kind: "TrendsQuery", series, breakdownFilter: { breakdown: NAME, breakdown_type: "event" } },
    { kind: "TrendsQuery", series: [{ kind: "EventsNode", event: "purchase" }], trendsFilter: { display: "ActionsPie" }, breakdownFilter: { breakdown: "platform", breakdown_type: "event" } },
    { kind: "FunnelsQuery", series: [...series, { kind: "EventsNode", event: "purchase" }] },
    { kind: "LifecycleQuery", series }, { kind: "StickinessQuery", series },
    { kind: "RetentionQuery", retentionFilter: { targetEntity: { id: NAME, type: "events" }, returningEntity: { id: NAME, type: "events" } } },
    { kind: "PathsQuery", pathsFilter: { includeEventTypes: ["custom_event"] } },
  ];
  for (const source of queries) {
    insights.push(await server.request("POST", "insights/", { name: NAME, description: NAME, saved: true, dashboards: [dashboard.id], query: { kind: "InsightVizNode", source } }));
  }
  const people = await server.request<{ results: { id: string }[] }>("GET", `persons/?distinct_id=${encodeURIComponent(NAME)}`);
  await console.open();
  const routes = [
    "#/", "#/flags", `#/flags/${flag.id}`, `#/flags/${flag.id}?section=usage`, "#/insights", ...insights.map(({ short_id }) => `#/insights/${short_id}`), "#/dashboards",
    `#/dashboards/${dashboard.id}`, "#/live", "#/persons", `#/persons/${people.results[0].id}`, "#/activity", "#/activity?log=insights", "#/activity?log=dashboards", "#/keys",
    `#/persons?search=${encodeURIComponent(NAME)}`, `#/flags/${encodeURIComponent(NAME)}`, `#/${encodeURIComponent(NAME)}`,
  ];
  for (const route of routes) {
    await console.go(route);
    await page.waitForLoadState("networkidle");
    await expect(page.locator("main .loading")).toHaveCount(0);
    expect(await page.evaluate(() => ({ injected: "injected" in window, scripts: document.querySelectorAll("script").length, images: document.querySelectorAll("img").length })), route)
      .toEqual({ injected: false, scripts: 1, images: 0 });
  }
  await console.go("#/live");
  await page.getByRole("button", { name: NAME }).first().click();
  await expect(page.getByRole("table", { name: `Properties of ${NAME}` })).toContainText(NAME);
  await server.request("PATCH", `feature_flags/${flag.id}/`, { deleted: true });
  await server.request("PATCH", `dashboards/${dashboard.id}/`, { deleted: true, delete_insights: true });
});
