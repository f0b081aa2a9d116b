// The console without a pointer: from signing in to a saved flag and a calculated trend.
import type { Page } from "@playwright/test";
import { expect, test } from "./fixtures";
import { KEYS, NUMBERS } from "./server";

/** Presses Tab until the element with this role and name has the focus, and checks that the focus is visible. */
async function tabTo(page: Page, role: Parameters<Page["getByRole"]>[0], name: string): Promise<void> {
  const target = page.getByRole(role, { name, exact: true }).first();
  for (let pressed = 0; pressed < 120; pressed += 1) {
    await page.keyboard.press("Tab");
    if (await target.evaluate((element) => element === document.activeElement)) {
      const outline = await target.evaluate((element) => getComputedStyle(element).outlineStyle);
      expect(outline, `outline of ${name}`).not.toBe("none");
      return;
    }
  }
  throw new Error(`Tab does not reach ${role} ${name}`);
}

test("signing in, a flag and a trend without a pointer", async ({ console, page, server }) => {
  expect(console.page).toBe(page);
  await page.goto(server.address);
  await expect(page.getByLabel("Personal API key")).toBeFocused();
  await page.keyboard.type(KEYS.single);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "Shop", level: 1 })).toBeVisible();

  await page.keyboard.type("gf");
  await expect(page.getByRole("heading", { name: "Flags", level: 1 })).toBeFocused();
  await tabTo(page, "link", "New flag");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "New flag", level: 1 })).toBeFocused();
  await tabTo(page, "textbox", "Key");
  await page.keyboard.type("by-keyboard");
  await tabTo(page, "button", "Add filter");
  await page.keyboard.press("Enter");
  await tabTo(page, "combobox", "Property");
  await page.keyboard.type("countr");
  await expect(page.getByRole("option", { name: /country/ })).toBeVisible();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await tabTo(page, "combobox", "Values of country");
  await page.keyboard.type("DE");
  await page.keyboard.press("Enter");
  await expect(page.getByText(`Matches ${NUMBERS.german} of ${NUMBERS.persons}`)).toBeVisible();
  await page.keyboard.press("Shift+Tab");
  await page.getByLabel("Key", { exact: true }).focus();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "by-keyboard", level: 1 })).toBeFocused();

  await page.keyboard.type("gi");
  await expect(page.getByRole("heading", { name: "Insights", level: 1 })).toBeFocused();
  await page.keyboard.press("/");
  await expect(page.getByRole("searchbox")).toBeFocused();
  await page.keyboard.press("Shift+Tab");
  await page.keyboard.press("Shift+Tab");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "New insight", level: 1 })).toBeFocused();
  await tabTo(page, "combobox", "Event of Series A");
  await page.keyboard.type("view");
  await page.keyboard.press("Escape");
  const number = page.getByRole("table", { name: "Numbers of this query" }).getByRole("button", { name: String(NUMBERS.view), exact: true });
  await expect(number).toBeVisible();
  await tabTo(page, "button", String(NUMBERS.view));
  await page.keyboard.press("Enter");
  await expect(page.getByRole("dialog").getByText("40 in all.")).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("dialog")).toHaveCount(0);
  await expect(number).toBeFocused();
  await page.keyboard.press("?");
  await expect(page.getByRole("dialog", { name: "Keyboard shortcuts" })).toBeVisible();
});
