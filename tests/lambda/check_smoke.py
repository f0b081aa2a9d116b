#!/usr/bin/env python3
"""scripts/smoke.sh against `pennon serve`, and against the functions behind the template's gateways. Then a flood of events there.

    check_smoke.py PENNON DIRECTORY      the command line, and the folder of the functions' binaries

The second address is an HTTP server that does what the distribution and both APIs of template.yaml do: chooses an API by the path, a
route by API Gateway's precedence, and invokes its function with the event of that API, under the worse reading of what AWS
documents. Jobs reach the worker as records of the stream. Needs aws-sam-translator (.ci/requirements.txt).
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import events
import flood
import gateways
from check_loop import API_FUNCTIONS, Server, panics, start_functions
from check_routes import READINGS, Route, choose
from runtime import Function
from store import prepare
from worker import record

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
import transform_template  # noqa: E402

# A slash is kept, and `{proxy+}` may be empty: how AWS treats the pattern of these routes, as far as is known.
KEPT = READINGS[1]


class Deployment:
    """The functions behind an HTTP server on a free port."""

    def __init__(self, server, binaries, directory):
        self.database = server.database
        self.environment = prepare(server, directory)
        names = [*API_FUNCTIONS, "worker"]
        self.functions = start_functions(binaries, self.environment, directory, API_FUNCTIONS)
        worker = Function(Path(binaries) / "worker", "worker", self.environment, 1769, 600, log=Path(directory) / "worker.log", directory=directory)
        self.functions["worker"] = worker.start()
        self.locks = {name: threading.Lock() for name in names}
        self.template = transform_template.load(ROOT / "template.yaml")
        found = transform_template.routes(self.template)
        self.routes = [Route(it["method"], it["path"], it["group"], it["gateway"]) for it in found]
        self.limits = None
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.host = f"127.0.0.1:{self.http.server_port}"
        self.url = f"http://{self.host}"
        self.ended = threading.Event()
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.stream = threading.Thread(target=self._wake_the_worker)
        self.stream.start()

    def stop(self):
        self.ended.set()
        self.stream.join()
        self.http.shutdown()
        self.http.server_close()
        for function in self.functions.values():
            function.stop()

    def invoke(self, name, event):
        """An emulated process handles one event at a time."""
        with self.locks[name]:
            return self.functions[name].invoke(event).value()

    def respond(self, request):
        event = gateways.deployed(request, self.host)
        gateway = gateways.gateway(request.path)
        path = event["rawPath"] if gateway == "http" else event["path"]
        route = choose([it for it in self.routes if it.gateway == gateway], request.method, path, KEPT)
        if route is None:
            # As HTTP APIs and REST APIs do.
            status, message = (404, b'{"message":"Not Found"}') if gateway == "http" else (403, b'{"message":"Missing Authentication Token"}')
            return status, {"content-type": "application/json"}, message
        if self.limits and not self.limits.admits(gateway, route.path):
            return 429 if gateway == "http" else 503, {"retry-after": "1"}, b'{"message":"Too Many Requests"}'
        return events.response_of(self.invoke(route.group, event))

    def _wake_the_worker(self):
        seen = set()
        while not self.ended.wait(0.3):
            jobs = [job for job in self.database.jobs() if str(job) not in seen]
            seen |= {str(job) for job in jobs}
            if jobs:
                outcome = self.invoke("worker", {"Records": [record(number, job) for number, job in enumerate(jobs)]})
                assert outcome == {"batchItemFailures": []}, outcome

    def _handler(deployment):  # noqa: N805 `self` is the handler's
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def serve(self):
                address = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
                headers = [(name, value) for name, value in self.headers.items() if name.lower() not in ("host", "connection", "content-length")]
                query = parse_qsl(address.query, keep_blank_values=True)
                # The scheme of links is what the client used, here without TLS.
                status, response_headers, content = deployment.respond(events.Request(self.command, address.path, query, headers, body))
                self.send_response_only(status)
                for name, value in response_headers.items():
                    # Links change the length.
                    if name != "content-length":
                        self.send_header(name, value.replace("https://" + deployment.host, deployment.url))
                content = content.replace(f"https://{deployment.host}".encode(), deployment.url.encode())
                if status not in (204, 304):
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_HEAD = do_POST = do_OPTIONS = do_PUT = do_PATCH = do_DELETE = serve

        return Handler


def smoke(where, url, key, token, command, environment=None):
    print(f"-- {where}", flush=True)
    began = time.monotonic()
    done = subprocess.run([ROOT / "scripts/smoke.sh", url, key, token, *command], env={**os.environ, **(environment or {})})
    if done.returncode:
        return [where]
    print(f"-- {time.monotonic() - began:.0f} s", flush=True)
    return []


def main():
    pennon, binaries = (os.path.realpath(path) for path in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as directory:
        server = Server(pennon, directory)
        try:
            key = server.declare(["smoke"])["smoke"]
            headers = [("Authorization", f"Bearer {key}")]
            token = json.loads(server.send(events.Request("GET", "/api/projects/1/", [], headers), "x")[2])["api_token"]
            deployment = Deployment(server, binaries, directory)
            try:
                failed = smoke("pennon serve", server.http, key, token, [pennon, "delete", "--data", str(server.data)])
                account = {**deployment.environment, "AWS_SECRET_ACCESS_KEY": "local", "AWS_REGION": "us-east-1"}
                failed += smoke("functions behind the template's gateways", deployment.url, key, token, [pennon, "delete", "--cloud"], account)
                failed += flood.check(deployment, deployment.template, key, token)
            finally:
                deployment.stop()
        finally:
            server.stop()
        if failed:
            print(panics(directory))
            sys.exit("failed: " + ", ".join(failed))


if __name__ == "__main__":
    main()
