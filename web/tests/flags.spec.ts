// Flags: creating, reach, concurrent changes, undo, history, evaluation.
import { ConsolePage, expect, test } from "./fixtures";
import { KEYS, NUMBERS, Server, TOKENS } from "./server";

interface StoredFlag {
  id: number;
  active: boolean;
  name: string;
  version: number;
  filters: { groups: { properties: object[]; rollout_percentage: number }[]; multivariate: { variants: object[] } | null };
}

test("a flag with a country condition, 20 % and two variants", async ({ console, page, server }) => {
  await console.open("#/flags/new");
  await page.getByLabel("Key", { exact: true }).fill("winter-sale");
  await page.getByLabel("Description").fill("The winter sale");
  const condition = page.getByRole("group", { name: "Condition 1" });
  await condition.getByRole("button", { name: "Add filter" }).click();
  await condition.getByRole("combobox", { name: "Property" }).fill("coun");
  await page.getByRole("option", { name: /country/ }).click();
  await condition.getByRole("combobox", { name: "Values of country" }).click();
  await page.getByRole("option", { name: "DE" }).click();
  await expect(condition.getByRole("status").last()).toContainText(`Matches ${NUMBERS.german} of ${NUMBERS.persons} persons (25.0 %)`);
  await page.getByLabel("Rollout of condition 1, %").fill("20");
  await expect(condition.getByRole("status").last()).toContainText("At 20 %: about 2.");
  await page.getByRole("button", { name: "Use variants" }).click();
  await page.getByLabel("Key of variant 2").fill("blue");
  await page.getByLabel("Payload of blue (JSON)").fill('{"color": "blue"}');
  await page.getByRole("button", { name: "Create flag" }).click();
  await expect(page.getByRole("heading", { name: "winter-sale", level: 1 })).toBeVisible();
  const list = await server.request<{ results: StoredFlag[] }>("GET", "feature_flags/?key=winter-sale");
  expect(list.results[0].filters).toEqual({
    groups: [{ properties: [{ key: "country", type: "person", operator: "exact", value: ["DE"] }], rollout_percentage: 20 }],
    multivariate: { variants: [{ key: "control", rollout_percentage: 50 }, { key: "blue", rollout_percentage: 50 }] },
    payloads: { blue: '{"color": "blue"}' },
  });
  await console.go("#/flags?search=winter");
  await expect(page.getByRole("row", { name: /winter-sale/ })).toContainText("20 % of country is DE · 2 variants");
});

test("a concurrent change shows both versions, and either can be kept", async ({ console, page, server }) => {
  const flag = await server.request<StoredFlag>("POST", "feature_flags/", { key: "concurrent", name: "first" });
  await console.open(`#/flags/${flag.id}`);
  await page.getByLabel("Description").fill("mine");
  await server.request("PATCH", `feature_flags/${flag.id}/`, { name: "theirs" });
  await page.getByRole("button", { name: "Save", exact: true }).click();
  const dialog = page.getByRole("dialog", { name: "Two versions of this flag" });
  await expect(dialog.getByRole("row", { name: /^Name/ }).getByRole("cell")).toHaveText(["first", "theirs", "mine"]);
  await expect(dialog).toContainText("ada@example.com");
  await dialog.getByRole("button", { name: "Continue editing" }).click();
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await dialog.getByRole("button", { name: "Take the stored version" }).click();
  await expect(page.getByLabel("Description")).toHaveValue("theirs");
  await page.getByLabel("Description").fill("mine again");
  await server.request("PATCH", `feature_flags/${flag.id}/`, { name: "theirs again" });
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await dialog.getByRole("button", { name: "Save mine over it" }).click();
  await expect(page.getByText("concurrent was saved as version 4.")).toBeVisible();
  expect((await server.request<StoredFlag>("GET", `feature_flags/${flag.id}/`)).name).toBe("mine again");
});

test("a change of a flag that is on for everybody names the number of persons; undo restores it", async ({ console, page, server }) => {
  const filters = { groups: [{ properties: [], rollout_percentage: 100 }] };
  const flag = await server.request<StoredFlag>("POST", "feature_flags/", { key: "on-for-all", filters });
  await console.open(`#/flags/${flag.id}`);
  await page.getByRole("checkbox", { name: "The flag is on" }).uncheck();
  await page.getByRole("button", { name: "Save", exact: true }).click();
  const dialog = page.getByRole("dialog", { name: "Change on-for-all for everybody?" });
  await expect(dialog).toContainText(`This flag is on for everybody: ${NUMBERS.persons} persons. After the change it is off for all of them.`);
  await dialog.getByRole("button", { name: "Cancel" }).click();
  expect((await server.request<StoredFlag>("GET", `feature_flags/${flag.id}/`)).active).toBe(true);
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await dialog.getByRole("button", { name: "Change it" }).click();
  await expect(page.getByText("on-for-all was saved as version 2.")).toBeVisible();
  expect((await server.request<StoredFlag>("GET", `feature_flags/${flag.id}/`)).active).toBe(false);
  await page.getByRole("button", { name: "Undo", exact: true }).click();
  await expect(page.getByText("Undone.")).toBeVisible();
  expect((await server.request<StoredFlag>("GET", `feature_flags/${flag.id}/`)).active).toBe(true);
  const history = page.getByRole("region", { name: "History" });
  await expect(history.getByRole("listitem")).toHaveCount(3);
  await expect(history.getByRole("listitem").nth(1)).toContainText("before: onafter: off");
  await history.getByRole("button", { name: "Undo this change" }).click();
  await expect(page.getByText("The change was undone.")).toBeVisible();
  expect((await server.request<StoredFlag>("GET", `feature_flags/${flag.id}/`)).active).toBe(false);
});

test("unsaved changes are left only after a confirmation", async ({ server, page }) => {
  const flag = await server.request<StoredFlag>("POST", "feature_flags/", { key: "unsaved" });
  await page.goto(`${server.address}#key=${KEYS.single}`);
  await expect(page.getByRole("heading", { name: "Shop", level: 1 })).toBeVisible();
  await page.evaluate((id) => { location.hash = `#/flags/${id}`; }, flag.id);
  await page.getByLabel("Description").fill("typed");
  page.once("dialog", (dialog) => void dialog.dismiss());
  await page.getByRole("link", { name: "Insights", exact: true }).click();
  await expect(page).toHaveURL(`${server.address}#/flags/${flag.id}`);
  await expect(page.getByLabel("Description")).toHaveValue("typed");
  page.once("dialog", (dialog) => void dialog.accept());
  await page.getByRole("link", { name: "Insights", exact: true }).click();
  await expect(page.getByRole("heading", { name: "Insights", level: 1 })).toBeVisible();
});

test("a stored flag is evaluated for a person, with the reason", async ({ console, page, server }) => {
  const filters = { groups: [{ properties: [{ key: "country", value: ["DE"], operator: "exact", type: "person" }], rollout_percentage: 100 }] };
  const flag = await server.request<StoredFlag>("POST", "feature_flags/", { key: "germans", filters });
  await console.open(`#/flags/${flag.id}`);
  const section = page.getByRole("region", { name: "Evaluate as person" });
  for (const [person, value] of [["person-04", "on"], ["person-05", "off"]]) {
    await section.getByRole("combobox", { name: "Distinct id" }).fill(person);
    await section.getByRole("combobox", { name: "Distinct id" }).press("Escape");
    await section.getByRole("button", { name: "Evaluate" }).click();
    await expect(section.getByRole("status")).toContainText(`Value for ${person}${value}`);
  }
  await expect(section.getByRole("status")).toContainText("No matching condition");
});

test("the list searches and filters", async ({ console, page, server }) => {
  await server.request("POST", "feature_flags/", { key: "list-off", active: false, tags: ["billing"] });
  await server.request("POST", "feature_flags/", { key: "list-on", tags: ["search"] });
  await console.open("#/flags");
  await page.getByRole("searchbox").fill("list-o");
  await expect(page.getByRole("row", { name: /^list-o/ })).toHaveCount(2);
  await page.getByLabel("State").selectOption("off");
  await expect(page.getByRole("row", { name: /^list-o/ })).toHaveCount(1);
  await page.getByLabel("State").selectOption("all");
  await page.getByLabel("Tag", { exact: true }).fill("search");
  await expect(page.getByRole("row", { name: /^list-on/ })).toBeVisible();
  await expect(page.getByRole("row", { name: /^list-off/ })).toHaveCount(0);
  await expect(page).toHaveURL(/tag=search/);
});

/** Persons that saw a variant, of whom the first ones bought. */
function buildExposures(variant: string, exposed: number, converted: number): object[] {
  return Array.from({ length: exposed }, (_, index) => {
    const event = (name: string, minutesAgo: number, properties = {}) => ({ event: name, distinct_id: `${variant}-${index}`, properties, timestamp: new Date(Date.now() - minutesAgo * 60_000).toISOString() });
    const seen = event("$feature_flag_called", 90, { $feature_flag: "checkout", $feature_flag_response: variant });
    return index < converted ? [seen, event("bought", 60)] : [seen];
  }).flat();
}

test("the impact of a flag, with the persons behind a number", async ({ page }) => {
  const server = await Server.start();
  try {
    const variants = [{ key: "control", rollout_percentage: 50 }, { key: "new", rollout_percentage: 50 }];
    const flag = await server.request<StoredFlag>("POST", "feature_flags/", { key: "checkout", filters: { groups: [{ properties: [], rollout_percentage: 100 }], multivariate: { variants } } });
    await server.capture(TOKENS.shop, [...buildExposures("control", 120, 30), ...buildExposures("new", 120, 60)]);
    const own = new ConsolePage(page, server);
    await own.open(`#/flags/${flag.id}?section=impact`);
    await page.getByRole("button", { name: "Compare variants" }).click();
    await expect(page.getByRole("alert")).toContainText("Enter the event that counts.");
    await page.getByRole("combobox", { name: "Event" }).fill("bough");
    await page.getByRole("option", { name: "bought" }).click();
    await page.getByRole("button", { name: "Compare variants" }).click();
    const row = page.getByRole("row", { name: /^new/ });
    await expect(row.getByRole("cell")).toContainText(["120", "60", "50.0 %", "25.0 %", /%$/, "higher"]);
    await expect(page.getByRole("row", { name: /^control/ }).getByRole("cell")).toContainText(["120", "30", "25.0 %"]);
    await expect(page.locator("svg.chart circle")).toHaveCount(2);
    await row.getByRole("button", { name: "60", exact: true }).click();
    await expect(page.getByRole("dialog", { name: "Saw new and converted" })).toContainText("new-");
  } finally {
    await server.stop();
  }
});
