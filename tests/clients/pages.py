"""Web pages for browser clients, and the Chromium that opens them.

The pages and the API use two ports of 127.0.0.1: two origins, so CORS applies, and one site, so that a cookie of the pages is sent
with exactly those requests to the API that a client sends with credentials.

As a program it prints the path of Chromium, which it installs if there is none."""

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Clients drop the events of bots, and the User-Agent of headless Chromium is detected as one.
USER_AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36"
NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
# Modules, resolved as a bundler would.
IMPORTS = {
    "posthog-js": "/packages/newest/node_modules/posthog-js/dist/module.js",
    "@openfeature/core": "/packages/newest/node_modules/@openfeature/core/dist/esm/index.js",
    "@openfeature/web-sdk": "/packages/newest/node_modules/@openfeature/web-sdk/dist/esm/index.js",
    "@openfeature/ofrep-core": "/packages/newest/node_modules/@openfeature/ofrep-core/index.esm.js",
    "@openfeature/ofrep-web-provider": "/packages/newest/node_modules/@openfeature/ofrep-web-provider/index.esm.js",
    "@posthog/openfeature-web-provider": "/packages/newest/node_modules/@posthog/openfeature-web-provider/dist/index.mjs",
    **{f"posthog-js-{version}": f"/packages/older/node_modules/posthog-js-{version}/dist/es.js" for version in ("1.57", "1.96", "1.109")},
}
PAGE = """<!doctype html><meta charset="utf-8"><title>client</title>
<script>window.process = {{env: {{NODE_ENV: "production"}}}}</script>
<script type="importmap">{imports}</script>
<script type="module" src="/browser/{program}"></script>
"""


def find_chromium():
    """The path of Chromium, installed if that needs no prompt; None if there is none."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None and os.getuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "--yes", "--no-install-recommends", "chromium"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
        if subprocess.run(install, **quiet).returncode != 0:
            subprocess.run(["apt-get", "update"], **quiet)
            subprocess.run(install, **quiet)
        found = shutil.which("chromium")
    return found


class Pages:
    """Serves the page of one client, and receives the result that the page posts."""

    def __init__(self, packages, program, task):
        self.packages, self.program, self.task = packages, program, task
        self.result = None
        self.has_result = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, self))
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Handler(SimpleHTTPRequestHandler):
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".mjs": "text/javascript", ".js": "text/javascript"}

    def __init__(self, pages, *arguments):
        self.pages = pages
        super().__init__(*arguments)

    def log_message(self, *_):
        pass

    def translate_path(self, path):
        path = path.partition("?")[0]
        if path.startswith("/packages/"):
            return str(self.pages.packages / path.removeprefix("/packages/"))
        return str(HERE / path.lstrip("/"))

    def do_GET(self):
        if self.path == "/":
            page = PAGE.format(imports=json.dumps({"imports": IMPORTS}), program=self.pages.program)
            return self.send(page, "text/html; charset=utf-8", {"Set-Cookie": "visited=1"})
        if self.path == "/task":
            return self.send(json.dumps(self.pages.task), "application/json")
        if self.path == "/favicon.ico":
            return self.send("", "image/x-icon")
        return super().do_GET()

    def do_POST(self):
        self.pages.result = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send("{}", "application/json")
        self.pages.has_result.set()

    def send(self, text, content_type, headers=None):
        content = text.encode()
        self.send_response(200)
        for name, value in {"Content-Type": content_type, "Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def run_page(packages, program, task, seconds, is_done, environment):
    """Opens the page and returns what it posted once `is_done()` is true too; (result or None, Chromium's messages)."""
    from product import wait_for

    chromium = find_chromium()
    if chromium is None:
        return None, f"no Chromium: install one of {', '.join(NAMES)}, or name it in CHROMIUM"
    pages = Pages(packages, program, task)
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        log = Path(profile) / "log"
        with open(log, "wb") as output:
            browser = subprocess.Popen(
                [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
                 "--disable-extensions", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--enable-logging=stderr",
                 f"--user-agent={USER_AGENT}", f"--user-data-dir={profile}/data", pages.url],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
        try:
            wait_for(lambda: (pages.has_result.is_set() and is_done()) or browser.poll() is not None, seconds)
        finally:
            browser.terminate()
            try:
                browser.wait(20)
            except subprocess.TimeoutExpired:
                browser.kill()
                browser.wait()
            pages.close()
        lines = log.read_text(errors="replace").splitlines()
        # The page reports its own log; only the browser logs requests that it blocked.
        return pages.result, "\n".join(line for line in lines if "blocked by" in line or (pages.result is None and "CONSOLE" in line))


if __name__ == "__main__":
    print(find_chromium() or sys.exit(f"no Chromium: install one of {', '.join(NAMES)}, or name it in CHROMIUM"))
