#!/usr/bin/env python3
"""How evaluations of flags fare while other requests overload the server.

    benchmarks/overload/measure.py PENNON [PENNON ...] [--seconds 20]

Starts each program on an empty directory, with 200 flags and 20,000 events, and sends one evaluation after the other, 50 a second,
while wrk sends reads, writes and calculations over many connections, as fast as the responses come. Needs wrk. Prints for
each load: latency of the evaluations, responses of the load by status, peak memory, and the seconds until the evaluations
are as fast as before the load. Server, wrk and evaluations share the machine, so compare programs in one run."""

import argparse
import http.client
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

KEY, TOKEN = "phx_overload", "phc_overload"
ORGANIZATION = "01900000-0000-7000-8000-000000000002"
WORKSPACE = {
    "organizations": [{"id": ORGANIZATION, "name": "Overload"}],
    "users": [{"id": 1, "email": "a@example.com", "memberships": [{"organization": ORGANIZATION, "level": "owner"}]}],
    "projects": [{"id": 1, "organization": ORGANIZATION, "token": TOKEN}],
    "keys": [{"label": "overload", "user": "a@example.com", "scopes": ["*"], "value": KEY}],
}
QUERY = {"query": {"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "seen", "math": "dau"}],
                   "dateRange": {"date_from": "-30d"}, "breakdownFilter": {"breakdown": "page", "breakdown_type": "event"}},
         "refresh": "force_blocking"}
LOADS = {  # connections, and the request
    "none": (0, None),
    "reads": (256, ("GET", "/api/projects/1/feature_flags/?limit=100", None)),
    "writes": (128, ("POST", "/api/projects/1/insights/", {"name": "a", "query": {"kind": "InsightVizNode", "source": QUERY["query"]}})),
    "calculations": (128, ("POST", "/api/projects/1/query/", QUERY)),
}
EVALUATIONS_A_SECOND = 50
WRK = """
wrk.method = "{method}"
wrk.body = {body}
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer {key}"
local threads = {{}}
function setup(thread) table.insert(threads, thread) end
function init() by = {{}} end
function response(status) by[status] = (by[status] or 0) + 1; text = "" for k, v in pairs(by) do text = text .. k .. "=" .. v .. " " end end
function done() for _, thread in ipairs(threads) do print("statuses " .. (thread:get("text") or "")) end end
"""


class Server:
    def __init__(self, binary, work):
        self.data = work / "data"
        workspace = work / "workspace.json"
        workspace.write_text(json.dumps(WORKSPACE))
        log = (work / "log").open("w")
        command = [binary, "serve", "--data", self.data, "--workspace", workspace, "--port", "0", "--dynamodb-port", "0", "--no-demo"]
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        while not (self.data / "server.json").exists():
            if self.process.poll() is not None:
                sys.exit((work / "log").read_text())
            time.sleep(0.05)
        self.url = json.loads((self.data / "server.json").read_text())["http"]
        self.address = self.url.removeprefix("http://")

    def send(self, method, path, body, key=KEY):
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers, method=method)
        return urllib.request.urlopen(request).read()

    def fill(self):
        for number in range(200):
            groups = [{"properties": [{"key": "plan", "value": [str(number), "pro"], "type": "person"}], "rollout_percentage": 50}]
            self.send("POST", "/api/projects/1/feature_flags/", {"key": f"flag-{number}", "filters": {"groups": groups}})
        for first in range(0, 20_000, 1000):
            batch = [{"event": "seen", "distinct_id": f"p{number % 3000}", "properties": {"page": f"/{number % 400}"}} for number in range(first, first + 1000)]
            self.send("POST", "/batch/", {"api_key": TOKEN, "batch": batch})

    def peak_megabytes(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) // 1024

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def evaluate_for(server, seconds):
    """Latencies of evaluations in milliseconds, and how many did not return 200."""
    body = json.dumps({"token": TOKEN, "distinct_id": "p1", "person_properties": {"plan": "pro"}})
    connection = http.client.HTTPConnection(server.address)
    latencies, failed, began = [], 0, time.monotonic()
    for number in range(int(seconds * EVALUATIONS_A_SECOND)):
        time.sleep(max(0, began + number / EVALUATIONS_A_SECOND - time.monotonic()))
        start = time.monotonic()
        connection.request("POST", "/flags/?v=2", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        latencies.append((time.monotonic() - start) * 1000)
        failed += response.status != 200
    return sorted(latencies), failed


def percentile(values, share):
    return values[min(len(values) - 1, int(len(values) * share))]


def start_load(server, work, name, seconds):
    connections, request = LOADS[name]
    if request is None:
        return None
    method, path, body = request
    script = work / f"{name}.lua"
    script.write_text(WRK.format(method=method, body="nil" if body is None else json.dumps(json.dumps(body)), key=KEY))
    command = ["wrk", "-t", "1", "-c", str(connections), "-d", f"{seconds}s", "--timeout", "60s", "-s", script, server.url + path]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def recovery(server, calm):
    """Seconds until ten evaluations in sequence are within twice the median before the load."""
    began = time.monotonic()
    while percentile(evaluate_for(server, 0.2)[0], 0.9) > 2 * calm:
        if time.monotonic() - began > 60:
            return 60.0
    return time.monotonic() - began


def measure(binary, seconds):
    print(f"{binary}\n{'load':14}{'p50 ms':>8}{'p99 ms':>8}{'failed':>8}{'peak MiB':>10}{'recovery s':>12}  responses of the load")
    with tempfile.TemporaryDirectory(prefix="pennon-overload-") as work:
        server = Server(binary, Path(work))
        server.fill()
        evaluate_for(server, 2)
        calm = 1.0
        for name in LOADS:
            load = start_load(server, Path(work), name, seconds)
            latencies, failed = evaluate_for(server, seconds)
            output = load.communicate()[0] if load else ""
            statuses = " ".join(re.findall(r"statuses (.*)", output))
            if load is None:
                calm = max(percentile(latencies, 0.5), 0.5)
            print(f"{name:14}{percentile(latencies, 0.5):8.1f}{percentile(latencies, 0.99):8.1f}{failed:8}{server.peak_megabytes():10}"
                  f"{recovery(server, calm):12.1f}  {statuses}", flush=True)
        server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pennon", nargs="+")
    parser.add_argument("--seconds", type=int, default=20)
    options = parser.parse_args()
    for binary in options.pennon:
        measure(binary, options.seconds)


if __name__ == "__main__":
    main()
