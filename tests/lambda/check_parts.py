#!/usr/bin/env python3
"""Queries in parts, in emulated functions: the function `calculation` splits each query, and processes of the function `parts` calculate it.

    check_parts.py PENNON DIRECTORY      the command line, and the folder of the functions' binaries

Starts `pennon serve` with the demo, gives the functions a copy of its data, and compares the results of queries. The endpoint of Lambda
throttles some invocations, lets one fail, and keeps one without a response, as a lost connection does.
"""

import json
import os
import queue
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import events
from check_loop import Server
from runtime import Function
from scenario import P
from store import prepare

PROCESSES = 2
# Of the demo's events in each part, so that all queries are split.
ROWS_PER_PART = 700
RANGE = {"date_from": "2024-06-01", "date_to": "2024-06-30"}


def series(*names):
    return [{"kind": "EventsNode", "event": name} for name in names]


QUERIES = {
    "funnel": {"kind": "FunnelsQuery", "series": series("product_view", "add_to_cart", "purchase"), "dateRange": RANGE},
    "trend": {"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "product_view", "math": "dau"}], "dateRange": RANGE,
              "breakdownFilter": {"breakdown": "platform", "breakdown_type": "event"}},
    "retention": {"kind": "RetentionQuery", "dateRange": RANGE, "retentionFilter": {
        "period": "Week", "totalIntervals": 4, "targetEntity": {"id": "home", "type": "events"}, "returningEntity": {"id": "search", "type": "events"}}},
    "stickiness": {"kind": "StickinessQuery", "series": series("catalog"), "dateRange": RANGE},
}


class Lambda:
    """The endpoint of invocations of `parts`."""

    def __init__(self, functions):
        self.functions, self.counts, self.lock = queue.Queue(), {"ok": 0, "throttled": 0, "failed": 0, "lost": 0}, threading.Lock()
        for function in functions:
            self.functions.put(function)
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.ended, self.requests = threading.Event(), 0
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def stop(self):
        self.ended.set()
        self.http.shutdown()
        self.http.server_close()

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def fault(self):
        """The fault of a request: of every seventh one, and one that is lost in all."""
        with self.lock:
            self.requests += 1
            if self.requests == 10:
                return "lost"
            return {3: "throttled", 6: "failed"}.get(self.requests % 7)

    def _handler(endpoint):  # noqa: N805 `self` is the handler's
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_POST(self):
                event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert self.path == "/2015-03-31/functions/parts/invocations", self.path
                assert "/us-east-1/lambda/aws4_request" in self.headers["Authorization"]
                fault = endpoint.fault()
                if fault:
                    endpoint.count(fault)
                if fault == "throttled":
                    return self.respond(429, b'{"Type": "User", "Reason": "ReservedFunctionConcurrentInvocationLimitExceeded"}')
                if fault == "failed":
                    return self.respond(200, b'{"errorMessage": "exited"}', {"X-Amz-Function-Error": "Unhandled"})
                if fault == "lost":
                    endpoint.ended.wait(30)
                    self.close_connection = True
                    return None
                function = endpoint.functions.get()
                try:
                    outcome = function.invoke(event)
                finally:
                    endpoint.functions.put(function)
                endpoint.count("ok")
                return self.respond(200, json.dumps(outcome.value()).encode())

            def respond(self, status, body, headers=()):
                self.send_response_only(status)
                for name, value in dict(headers).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        return Handler


def request(key, query):
    headers = [("Authorization", f"Bearer {key}"), ("Content-Type", "application/json")]
    return events.Request("POST", f"{P}/query/", [], headers, json.dumps({"query": query, "refresh": "force_blocking"}).encode())


def results(response):
    status, _, content = response
    assert status == 200, content[:500]
    return json.loads(content)["results"]


def check(pennon, binaries, directory):
    server = Server(pennon, directory)
    running = []
    try:
        key = server.declare(["parts"])["parts"]
        environment = prepare(server, directory)
        for number in range(PROCESSES):
            log = Path(directory) / f"parts-{number}.log"
            part = Function(Path(binaries) / "parts", "parts", environment, 1769, 300, log=log, directory=directory)
            running.append(part.start())
        endpoint = Lambda(running[:])
        environment = {**environment, "PENNON_PARTS_FUNCTION": "parts", "PENNON_ROWS_PER_PART": str(ROWS_PER_PART), "AWS_ENDPOINT_URL_LAMBDA": endpoint.url}
        log = Path(directory) / "calculation.log"
        calculation = Function(Path(binaries) / "calculation", "calculation", environment, 1769, 29, log=log, directory=directory).start()
        running.append(calculation)
        for name, query in QUERIES.items():
            sent = request(key, query)
            expected = results(server.send(sent, events.HTTP_HOST))
            before = endpoint.counts["ok"]
            found = results(events.response_of(calculation.invoke(events.http_api(sent)).value()))
            assert found == expected, f"{name}: {found!r:.500} instead of {expected!r:.500}"
            invocations = endpoint.counts["ok"] - before
            assert invocations > 1, f"{name}: {invocations} invocations"
            print(f"{name}: {invocations} invocations", flush=True)
        assert all(endpoint.counts.values()), endpoint.counts
        endpoint.stop()
    finally:
        for function in running:
            function.stop()
        server.stop()


def main():
    pennon, binaries = (os.path.realpath(path) for path in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as directory:
        check(pennon, binaries, directory)
    print("queries in parts: equal")


if __name__ == "__main__":
    main()
