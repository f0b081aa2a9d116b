// Keys in the console: created with the secret shown once, listed, revoked.
import AxeBuilder from "@axe-core/playwright";
import { expect, test } from "./fixtures";
import { KEYS } from "./server";

test("a key is created, shown once, works, and is revoked", async ({ console, page, server }) => {
  await page.goto(`${server.address}#key=${KEYS.full}`);
  await page.getByRole("button", { name: /Shop/ }).click();
  await console.go("#/keys");
  const list = page.getByRole("region", { name: "Your keys" });
  await expect(list.getByRole("row", { name: /^full this tab/ })).toBeVisible();
  await expect(list.getByRole("row", { name: /^reader/ })).toContainText("feature_flag:read");

  const form = page.getByRole("form", { name: "Create a key" });
  await form.getByLabel("Label").fill("backend");
  await form.getByRole("checkbox", { name: /^feature_flag:write/ }).check();
  await form.getByRole("button", { name: "Create key" }).click();
  const shown = page.getByRole("region", { name: "The new key" });
  const secret = (await shown.locator("pre").textContent()) ?? "";
  expect(secret).toMatch(/^phx_/);
  const created = await fetch(`${server.address}api/projects/1/feature_flags/`, {
    method: "POST",
    headers: { Authorization: `Bearer ${secret}`, "Content-Type": "application/json" },
    body: JSON.stringify({ key: "made-by-a-new-key" }),
  });
  expect(created.status).toBe(201);
  const findings = await new AxeBuilder({ page }).analyze();
  expect(findings.violations.filter(({ impact }) => impact === "serious" || impact === "critical")).toEqual([]);
  await shown.getByRole("button", { name: "I have copied it" }).click();
  await expect(page.getByText(secret)).toHaveCount(0);

  const row = list.getByRole("row", { name: /^backend/ });
  await expect(row).toContainText("feature_flag:write");
  await row.getByRole("button", { name: "Revoke backend" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Revoke key" }).click();
  await expect(row).toHaveCount(0);
});

test("a key with limits shows the command that creates keys", async ({ console, page }) => {
  await console.open("#/keys", KEYS.single);
  await expect(page.getByRole("region", { name: "Your keys" })).toHaveCount(0);
  await expect(page.getByRole("button", { name: "Create key" })).toHaveCount(0);
  await page.getByLabel("Label").fill("it's mine");
  await expect(page.getByText("pennon keys create --label 'it'\\''s mine'")).toBeVisible();
});
