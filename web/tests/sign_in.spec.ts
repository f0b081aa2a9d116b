// The key: from the address, from the form; wrong, expired, read-only; the choice of the project.
import { expect, test } from "./fixtures";
import { KEYS } from "./server";

test("the key of the address is taken out of it at once, and kept for the tab", async ({ console, page, server }) => {
  await console.open();
  await expect(page).toHaveURL(`${server.address}#/`);
  await page.goBack().catch(() => null);
  expect(page.url()).not.toContain("phx_");
  await page.goto(server.address);
  await expect(page.getByRole("heading", { name: "Shop", level: 1 })).toBeVisible();
  expect(await page.evaluate(() => JSON.stringify({ ...localStorage }))).not.toContain("phx_");
});

test("another tab has to sign in", async ({ console, context, server }) => {
  await console.open();
  const other = await context.newPage();
  await other.goto(server.address);
  await expect(other.getByLabel("Personal API key")).toBeVisible();
});

for (const name of ["wrong", "expired"] as const) {
  test(`a key that is ${name} is explained`, async ({ console, page, server }) => {
    await page.goto(server.address);
    await page.getByLabel("Personal API key").fill(KEYS[name]);
    await page.getByRole("button", { name: "Sign in" }).click();
    await expect(page.getByRole("alert")).toContainText("mistyped, expired or revoked");
    await expect(page.getByRole("alert")).toContainText("pennon keys create");
    expect(await page.evaluate(() => sessionStorage.length)).toBe(0);
    await page.getByLabel("Personal API key").fill(KEYS.single);
    await page.getByRole("button", { name: "Sign in" }).click();
    await expect(page.getByRole("heading", { name: "Shop", level: 1 })).toBeVisible();
    expect(console.page).toBe(page);
  });
}

test("a key that only reads is explained, with the scope that it lacks", async ({ console, page, server }) => {
  const flag = await server.request<{ id: number }>("POST", "feature_flags/", { key: "read-only" });
  await console.open("#/flags", KEYS.reader);
  await expect(page.getByText("lacks the scope feature_flag:write")).toBeVisible();
  await expect(page.getByRole("link", { name: "New flag" })).toHaveCount(0);
  await console.go(`#/flags/${flag.id}`);
  await expect(page.getByText("lacks the scope feature_flag:write").first()).toBeVisible();
  await expect(page.getByRole("checkbox", { name: "The flag is on" })).toBeDisabled();
  await console.go("#/insights");
  await expect(page.getByText("lacks the scope insight:write")).toBeVisible();
  await console.go("#/keys");
  await expect(page.getByRole("row", { name: /^feature_flag:write/ })).toContainText("no");
  await expect(page.getByRole("row", { name: /^feature_flag:read/ })).toContainText("yes");
});

test("a key of several projects chooses one, and changes it", async ({ console, page, server }) => {
  await page.goto(`${server.address}#key=${KEYS.full}`);
  await page.getByRole("button", { name: /Empty/ }).click();
  await expect(page.getByRole("heading", { name: "Empty", level: 1 })).toBeVisible();
  await page.getByLabel("Project").selectOption({ label: "Shop" });
  await expect(page.getByRole("heading", { name: "Shop", level: 1 })).toBeVisible();
  await page.getByRole("button", { name: "Sign out" }).click();
  await expect(page.getByLabel("Personal API key")).toBeVisible();
  expect(await page.evaluate(() => sessionStorage.length)).toBe(0);
  expect(console.page).toBe(page);
});
