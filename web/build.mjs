// Builds the console, the API reference and the parts of shared pages into dist/: index.html, reference.html, shared.html, and assets/
// whose names contain the digest of their bytes. shared.html is the part of the head of a shared page that loads its assets; the function
// `insights` writes the rest. The function `reference` replaces {root} in reference.html, whose address may end in a slash.
//
//   node build.mjs            builds once; the same sources give the same bytes
//   node build.mjs --watch    rebuilds after each change of src/, without removing the assets of earlier builds
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, rmSync, watch, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const folder = dirname(fileURLToPath(import.meta.url));

/** Writes `bytes` under a name with their digest, and returns the relative URL. */
function writeAsset(target, name, extension, bytes) {
  const digest = createHash("sha256").update(bytes).digest("hex").slice(0, 16);
  const url = `assets/${name}-${digest}.${extension}`;
  writeFileSync(join(target, url), bytes);
  return url;
}

/** The description of the API as HTML, so that it is there before the script: escaped, with code spans as elements. */
function readDescription() {
  const { info } = JSON.parse(readFileSync(join(folder, "../docs/openapi.json"), "utf8"));
  return info.description.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replace(/`([^`]+)`/g, (_, code) => `<code>${code}</code>`);
}

/** Builds all pages into the folder `target`. */
export async function buildPages(target, keepOlder = false) {
  const bundle = await build({
    entryPoints: {
      console: join(folder, "src/main.tsx"),
      "console-styles": join(folder, "src/styles/main.css"),
      shared: join(folder, "src/shared/main.ts"),
      "shared-styles": join(folder, "src/shared/page.css"),
      reference: join(folder, "src/reference/main.tsx"),
      "reference-styles": join(folder, "src/reference/page.css"),
    },
    outdir: target,
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    target: ["chrome123", "firefox120", "safari17.5"],
    jsx: "automatic",
    jsxImportSource: "preact",
    charset: "utf8",
    legalComments: "none",
    logLevel: "warning",
  });
  const output = (name) => bundle.outputFiles.find((file) => basename(file.path) === name).contents;
  if (!keepOlder) rmSync(target, { recursive: true, force: true });
  mkdirSync(join(target, "assets"), { recursive: true });
  const icon = writeAsset(target, "icon", "svg", readFileSync(join(folder, "src/icon.svg")));
  const writePage = (name, source, bundleName) => {
    const page = readFileSync(join(folder, source), "utf8")
      .replace("{icon}", icon)
      .replace("{description}", readDescription)
      .replace("{styles}", writeAsset(target, bundleName, "css", output(`${bundleName}-styles.css`)))
      .replace("{script}", writeAsset(target, bundleName, "js", output(`${bundleName}.js`)));
    writeFileSync(join(target, name), page);
  };
  writePage("index.html", "src/index.html", "console");
  writePage("shared.html", "src/shared/head.html", "shared");
  writePage("reference.html", "src/reference/page.html", "reference");
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const target = join(folder, "dist");
  const isWatching = process.argv.includes("--watch");
  await buildPages(target, isWatching);
  if (isWatching) {
    console.log("Built. Waiting for changes of src/; end with Ctrl-C.");
    let timer;
    watch(join(folder, "src"), { recursive: true }, () => {
      clearTimeout(timer);
      timer = setTimeout(() => buildPages(target, true).then(() => console.log("Rebuilt."), () => {}), 50);
    });
  }
}
