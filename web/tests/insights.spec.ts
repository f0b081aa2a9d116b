// Insights: a funnel that is saved, put on a dashboard, shared and revoked; a trend by breakdown; people behind a number.
import { expect, test } from "./fixtures";
import { NUMBERS } from "./server";

test("a funnel of three steps is saved, put on a dashboard, shared, and revoked", async ({ console, page, context }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await console.open("#/insights");
  await page.getByRole("link", { name: "New funnel" }).click();
  await page.getByLabel("Name").fill("From view to purchase");
  await page.getByRole("combobox", { name: "Event of Step 1" }).fill("vi");
  await page.getByRole("option", { name: "view" }).click();
  await console.fill("Event of Step 2", "cart");
  await page.getByRole("button", { name: "Add step" }).click();
  await console.fill("Event of Step 3", "purchase");
  const numbers = page.getByRole("table", { name: "Numbers of From view to purchase" });
  await expect(numbers.getByRole("row", { name: /^1\. view/ }).getByRole("cell").first()).toHaveText(String(NUMBERS.view));
  await expect(numbers.getByRole("row", { name: /^2\. cart/ }).getByRole("cell")).toHaveText(["20", "50.0 %", "50.0 %", "20", "1m", "1m"]);
  await expect(numbers.getByRole("row", { name: /^3\. purchase/ }).getByRole("cell")).toHaveText(["8", "20.0 %", "40.0 %", "12", "1m", "1m"]);
  await expect(page.getByRole("img", { name: /40 began with view, 8 reached purchase \(20\.0 %\)/ })).toBeVisible();

  await page.getByRole("button", { name: "Save", exact: true }).click();
  await expect(page.getByRole("heading", { name: "From view to purchase", level: 1 })).toBeVisible();
  await page.getByLabel("New dashboard").fill("Shop numbers");
  await page.getByRole("button", { name: "Create and add" }).click();
  await expect(page.getByRole("checkbox", { name: "Shop numbers" })).toBeChecked();

  await page.getByRole("button", { name: "Share", exact: true }).click();
  const dialog = page.getByRole("dialog", { name: "Share From view to purchase" });
  await dialog.getByRole("checkbox", { name: "Share by link" }).check();
  const link = (await dialog.getByLabel("Sharing link").textContent())!;
  await expect(dialog.getByLabel("Frame")).toContainText(`<iframe src="${link.replace("/shared/", "/embedded/")}" title="From view to purchase"`);
  const open = async () => {
    const response = await fetch(link);
    return { status: response.status, text: await response.text() };
  };
  const shared = await open();
  expect(shared.status).toBe(200);
  expect(shared.text).toContain("<title>From view to purchase</title>");
  await dialog.getByRole("checkbox", { name: "Share by link" }).uncheck();
  await expect(dialog.locator("pre")).toHaveCount(0);
  expect((await open()).status).toBe(404);
  await dialog.getByRole("button", { name: "Close" }).click();

  await page.getByRole("link", { name: "open" }).click();
  await expect(page.getByRole("heading", { name: "Shop numbers", level: 1 })).toBeVisible();
  const tile = page.getByRole("article", { name: "From view to purchase" });
  await expect(tile.getByRole("img", { name: /8 reached purchase/ })).toBeVisible();
  await page.getByRole("button", { name: "Share", exact: true }).click();
  const sharing = page.getByRole("dialog", { name: "Share Shop numbers" });
  await sharing.getByRole("checkbox", { name: "Share by link" }).check();
  const dashboardPage = await fetch((await sharing.getByLabel("Sharing link").textContent())!);
  expect(await dashboardPage.text()).toContain("<h2 dir=\"auto\">From view to purchase</h2>");
  await sharing.getByRole("button", { name: "Close" }).click();
  await tile.getByRole("button", { name: /^Remove/ }).click();
  await expect(page.getByText("No insight is on this dashboard.")).toBeVisible();
  await page.getByRole("button", { name: "Undo", exact: true }).click();
  await expect(tile).toBeVisible();
});

test("a trend by breakdown, and the people behind a number", async ({ console, page }) => {
  await console.open("#/insights");
  await page.getByRole("link", { name: "New trend" }).click();
  await console.fill("Event of Series A", "view");
  await page.getByRole("combobox", { name: "Breakdown by" }).fill("plat");
  await page.getByRole("option", { name: /platform/ }).click();
  await page.getByLabel("Picture").selectOption("bars of totals");
  const numbers = page.getByRole("table", { name: "Numbers of this query" });
  await expect(numbers.getByRole("row", { name: /^desktop/ }).getByRole("cell")).toHaveText(String(NUMBERS.persons - NUMBERS.phone));
  await expect(numbers.getByRole("row", { name: /^phone/ }).getByRole("cell")).toHaveText(String(NUMBERS.phone));
  await expect(page.getByRole("img", { name: /desktop: 28, phone: 12/ })).toBeVisible();
  await numbers.getByRole("button", { name: "12" }).click();
  const people = page.getByRole("dialog", { name: "phone" });
  await expect(people.getByText("12 in all.")).toBeVisible();
  await expect(people.getByRole("rowheader")).toHaveCount(NUMBERS.phone);
  await people.getByRole("link", { name: "person-00@example.com" }).click();
  await expect(page.getByRole("heading", { name: "person-00@example.com", level: 1 })).toBeVisible();
  await page.goBack();
  await expect(page.getByRole("combobox", { name: "Breakdown by" })).toHaveValue("platform");
  await expect(page.getByRole("img", { name: /desktop: 28, phone: 12/ })).toBeVisible();
});

test("the same query is offered as curl, Python and JSON", async ({ console, page }) => {
  await console.open("#/insights/new");
  await console.fill("Event of Series A", "it's");
  const code = page.getByRole("region", { name: "The same query for other clients" });
  await expect(code.locator("pre")).toContainText(`"event":"it'\\''s"`);
  await code.getByRole("button", { name: "Python" }).click();
  await expect(code.locator("pre")).toContainText(`"event": "it's"`);
  await expect(code.locator("pre")).not.toContainText("true");
  await code.getByRole("button", { name: "JSON" }).click();
  expect(JSON.parse((await code.locator("pre").textContent())!).query.series[0].event).toBe("it's");
});

for (const [kind, name] of [["Retention", /starts in/], ["Lifecycle", /Actors by status/], ["Stickiness", /active intervals/], ["Paths", /Most frequent/]] as const) {
  test(`the picture of ${kind.toLowerCase()} is drawn and saved @long`, async ({ console, page }) => {
    await console.open("#/insights/new");
    await page.getByRole("group", { name: "Kind of insight" }).getByRole("button", { name: kind }).click();
    await expect(page.getByRole("img", { name })).toBeVisible();
    await page.getByLabel("Name").fill(`A ${kind}`);
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await expect(page.getByRole("heading", { name: `A ${kind}`, level: 1 })).toBeVisible();
    await expect(page.getByRole("img", { name })).toBeVisible();
  });
}
