// Starts `pennon serve` for the tests: keys with different scopes, and events whose numbers are known.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const folder = dirname(fileURLToPath(import.meta.url));
const BINARY = process.env.PENNON_BINARY ?? join(folder, "../../target/debug/pennon");
const ORGANIZATION = "01900000-0000-7000-8000-00000000c0de";

export const KEYS = {
  full: "phx_full_0123456789012345678901234567890123456",
  reader: "phx_reader_0123456789012345678901234567890123",
  expired: "phx_expired_012345678901234567890123456789012",
  single: "phx_single_0123456789012345678901234567890123",
  wrong: "phx_wrong_01234567890123456789012345678901234",
};
export const TOKENS = { shop: "phc_shop", empty: "phc_empty" };

/** Of 40 persons 10 are in DE; 12 use a phone. 40 view, 20 of them add to the cart, 8 of those buy. */
export const NUMBERS = { persons: 40, german: 10, phone: 12, view: 40, cart: 20, purchase: 8 };

const READ = ["project", "feature_flag", "insight", "query", "dashboard", "person", "activity_log", "event_definition", "property_definition", "sharing_configuration"];

const WORKSPACE = {
  organizations: [{ id: ORGANIZATION, name: "Acme" }],
  users: [{ id: 1, email: "ada@example.com", first_name: "Ada", memberships: [{ organization: ORGANIZATION, level: "owner" }] }],
  projects: [
    { id: "1", organization: ORGANIZATION, name: "Shop", token: TOKENS.shop },
    { id: "2", organization: ORGANIZATION, name: "Empty", token: TOKENS.empty },
  ],
  keys: [
    { label: "full", user: "ada@example.com", scopes: ["*"], value: KEYS.full },
    { label: "reader", user: "ada@example.com", scopes: READ.map((name) => `${name}:read`), projects: ["1"], value: KEYS.reader },
    { label: "single", user: "ada@example.com", scopes: ["*"], projects: ["1"], value: KEYS.single },
    { label: "expired", user: "ada@example.com", scopes: ["*"], expires_at: "2020-01-01T00:00:00Z", value: KEYS.expired },
  ],
};

function buildEvents(): object[] {
  const yesterday = Date.now() - 86_400_000;
  const events: object[] = [];
  for (let index = 0; index < NUMBERS.persons; index += 1) {
    const distinct_id = `person-${String(index).padStart(2, "0")}`;
    const platform = index < NUMBERS.phone ? "phone" : "desktop";
    const names = ["view", ...(index < NUMBERS.cart ? ["cart"] : []), ...(index < NUMBERS.purchase ? ["purchase"] : [])];
    names.forEach((event, order) => {
      const properties = { platform, $set: { country: index % 4 === 0 ? "DE" : "FR", email: `${distinct_id}@example.com` } };
      events.push({ event, distinct_id, timestamp: new Date(yesterday + order * 60_000).toISOString(), properties });
    });
  }
  return events;
}

/** A running server and its address, with a slash. */
export class Server {
  readonly address: string;
  private readonly processes: ChildProcess[];
  private readonly data: string;

  private constructor(address: string, processes: ChildProcess[], data: string) {
    this.address = address;
    this.processes = processes;
    this.data = data;
  }

  static async start(): Promise<Server> {
    const data = mkdtempSync(join(tmpdir(), "pennon-console-test-"));
    const workspace = join(data, "workspace.json");
    writeFileSync(workspace, JSON.stringify(WORKSPACE));
    const pennon = spawn(BINARY, ["serve", "--port", "0", "--data", join(data, "data"), "--workspace", workspace], { stdio: ["ignore", "pipe", "inherit"] });
    const api = await readAddress(pennon, /^Pennon serves on (http:\S+)/);
    const server = process.env.CONSOLE_FROM_DIST ? await Server.startBefore(api, pennon, data) : new Server(`${api}/`, [pennon], data);
    await server.capture(TOKENS.shop, buildEvents());
    return server;
  }

  /** The console of dist/ before an API that was built with another one, or with none. */
  private static async startBefore(api: string, pennon: ChildProcess, data: string): Promise<Server> {
    const proxy = spawn(process.execPath, [join(folder, "../serve.mjs"), "--api", api, "--port", "0"], { stdio: ["ignore", "pipe", "inherit"] });
    return new Server(await readAddress(proxy, /^(http:\S+)/), [proxy, pennon], data);
  }

  async stop(): Promise<void> {
    for (const process of this.processes) {
      const ended = new Promise((resolve) => process.once("exit", resolve));
      process.kill("SIGINT");
      await ended;
    }
    rmSync(this.data, { recursive: true, force: true });
  }

  async capture(token: string, batch: object[]): Promise<void> {
    const response = await fetch(`${this.address}batch/`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ api_key: token, batch }) });
    if (!response.ok) throw new Error(await response.text());
  }

  /** Sends a request to project 1 with the key that has all scopes. */
  async request<T = Record<string, unknown>>(method: string, path: string, body?: unknown): Promise<T> {
    const response = await fetch(`${this.address}api/projects/1/${path}`, {
      method, headers: { Authorization: `Bearer ${KEYS.full}`, "Content-Type": "application/json" }, body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${method} ${path}: ${await response.text()}`);
    return (await response.json()) as T;
  }
}

function readAddress(process: ChildProcess, pattern: RegExp): Promise<string> {
  return new Promise((resolve, reject) => {
    process.once("error", reject);
    process.once("exit", (status) => reject(new Error(`${BINARY} ended with status ${status} while starting. PENNON_BINARY names another binary.`)));
    createInterface(process.stdout!).on("line", (line) => {
      const match = pattern.exec(line);
      if (match) resolve(match[1]);
    });
  });
}
