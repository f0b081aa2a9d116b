// Serves dist/ for development, and forwards every other request to a Pennon that runs elsewhere.
//
//   node serve.mjs --api http://127.0.0.1:8080 [--port 8081]
import { createServer, request } from "node:http";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { gzipSync } from "node:zlib";

const folder = join(dirname(fileURLToPath(import.meta.url)), "dist");
const { values } = parseArgs({ options: { api: { type: "string", default: "http://127.0.0.1:8080" }, port: { type: "string", default: "8081" } } });
const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8", svg: "image/svg+xml" };
// The policy of functions/reference/src/console.rs.
const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

function sendFile(response, path, accepted = "", root = "") {
  try {
    const isGzipped = accepted.includes("gzip");
    const bytesOfFile = readFileSync(join(folder, path));
    const file = path.endsWith(".html") ? bytesOfFile.toString().replaceAll("{root}", root) : bytesOfFile;
    const bytes = isGzipped ? gzipSync(file, { level: 9 }) : file;
    response.writeHead(200, { ...(isGzipped && { "Content-Encoding": "gzip" }), "Content-Type": TYPES[path.split(".").pop()] ?? "application/octet-stream", "Content-Security-Policy": POLICY, "Cache-Control": "no-store" });
    response.end(bytes);
  } catch {
    response.writeHead(404).end();
  }
}

const server = createServer((incoming, response) => {
  const path = incoming.url.split("?")[0];
  if (path === "/") return sendFile(response, "index.html");
  if (path === "/docs" || path === "/docs/") return sendFile(response, "reference.html", "", path.endsWith("/") ? "../" : "");
  if (/^\/assets\/[\w.-]+$/.test(path)) return sendFile(response, path.slice(1), incoming.headers["accept-encoding"]);
  const target = new URL(incoming.url, values.api);
  const forwarded = request(target, { method: incoming.method, headers: incoming.headers }, (outgoing) => {
    response.writeHead(outgoing.statusCode, outgoing.headers);
    outgoing.pipe(response);
  });
  forwarded.on("error", () => response.writeHead(502).end());
  incoming.pipe(forwarded);
});
server.listen(Number(values.port), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/`));
