// The fixtures of all tests: a server for the whole run, and a page that may not load anything from elsewhere.
import { type Page, test as base, expect } from "@playwright/test";
import { KEYS, Server } from "./server";

interface WorkerFixtures {
  server: Server;
}

interface TestFixtures {
  console: ConsolePage;
}

/** The console in a browser. */
export class ConsolePage {
  readonly page: Page;
  readonly server: Server;

  constructor(page: Page, server: Server) {
    this.page = page;
    this.server = server;
  }

  /** Opens the console with the key in the address, as the first start of the server prints it; and the project, if there are several. */
  async open(route = "#/", key = KEYS.single): Promise<void> {
    await this.page.goto(`${this.server.address}#key=${key}`);
    await expect(this.page.getByRole("navigation", { name: "Views" })).toBeVisible();
    await this.go(route);
  }

  async go(route: string): Promise<void> {
    await this.page.evaluate((target) => {
      location.hash = target;
    }, route);
    await expect(this.page.locator("main h1")).toBeVisible();
  }

  /** Fills a field with suggestions, without choosing one. */
  async fill(label: string, value: string): Promise<void> {
    await this.page.getByRole("combobox", { name: label, exact: true }).fill(value);
    await this.page.getByRole("combobox", { name: label, exact: true }).press("Escape");
  }
}

export const test = base.extend<TestFixtures, WorkerFixtures>({
  server: [
    async ({}, use) => {
      const server = await Server.start();
      await use(server);
      await server.stop();
    },
    { scope: "worker", timeout: 60_000 },
  ],
  console: async ({ page, server }, use) => {
    const problems: string[] = [];
    page.on("request", (request) => {
      if (!request.url().startsWith(server.address) && !request.url().startsWith("blob:")) problems.push(`request to ${request.url()}`);
      if (request.url().includes("phx_")) problems.push("a key is part of an address");
    });
    page.on("pageerror", (error) => problems.push(`exception: ${error.message}`));
    page.on("dialog", (dialog) => {
      problems.push(`dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on("console", (message) => {
      // The browser itself reports responses with an error status, which some tests provoke.
      if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) problems.push(`message: ${message.text()}`);
    });
    await use(new ConsolePage(page, server));
    expect(problems).toEqual([]);
  },
});

export { expect };
