"""Pennon as a contender: events imported into an installation of its own, queries sent over HTTP.

CPU time is that of the server's process, user and system, in nanoseconds from its threads' `schedstat`: so a single response of
a few milliseconds can be measured. Threads that end between two samples would be lost; the runtime keeps idle ones for
ten seconds, and samples are taken immediately before and after each response."""

import json
import subprocess
import sys
import time
from pathlib import Path

from queries import (ALL, MONTH, PATH_EDGES, PATH_STEPS, STEPS, TOP, WEEKS, WEEKS_RANGE, WINDOW_DAYS, bars_of, edges_of,
                     statuses_of, weeks_of)

sys.path.insert(0, str(Path(__file__).parent.parent / "flags"))
from processes import Process, send_request, free_port  # noqa: E402

KEY = "phx_" + "benchmark" * 4
ORGANIZATION = "01900000-0000-7000-8000-000000000001"
WORKSPACE = {
    "organizations": [{"id": ORGANIZATION, "name": "Benchmark"}],
    "users": [{"id": 1, "email": "benchmark@example.com", "memberships": [{"organization": ORGANIZATION, "level": "owner"}]}],
    "projects": [{"id": 1, "organization": ORGANIZATION, "token": "phc_benchmark"}],
    "keys": [{"label": "benchmark", "user": "benchmark@example.com", "scopes": ["*"], "value": KEY}],
}
HEADERS = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}


def query(query_name):
    """The query node of a benchmark query."""
    def event(name, **more):
        return {"kind": "EventsNode", "event": name, **more}

    def days(range_of):
        return {"date_from": range_of[0], "date_to": range_of[1]}

    if query_name == "weekly retention":
        entity = {"id": "$pageview", "type": "events"}
        return {"kind": "RetentionQuery", "dateRange": days(WEEKS_RANGE), "retentionFilter": {
            "period": "Week", "totalIntervals": WEEKS, "targetEntity": entity, "returningEntity": entity}}
    if query_name == "daily lifecycle":
        return {"kind": "LifecycleQuery", "series": [event(STEPS[0])], "interval": "day", "dateRange": days(MONTH)}
    if query_name == "stickiness":
        return {"kind": "StickinessQuery", "series": [event(STEPS[0])], "interval": "day", "dateRange": days(MONTH)}
    if query_name == "paths":
        return {"kind": "PathsQuery", "dateRange": days(MONTH), "pathsFilter": {
            "includeEventTypes": ["hogql"], "pathsHogQLExpression": "event", "stepLimit": PATH_STEPS, "edgeLimit": PATH_EDGES}}
    if "funnel" in query_name:
        node = {"kind": "FunnelsQuery", "series": [event(step) for step in STEPS], "dateRange": days(ALL),
                "funnelsFilter": {"funnelWindowInterval": WINDOW_DAYS, "funnelWindowIntervalUnit": "day"}}
        if query_name == "strict funnel":
            node["funnelsFilter"]["funnelOrderType"] = "strict"
        if query_name == "funnel by browser":
            node["breakdownFilter"] = {"breakdown": "browser", "breakdown_type": "event", "breakdown_limit": 10}
        return node
    node = {"kind": "TrendsQuery", "interval": "day", "dateRange": days(MONTH)}
    if query_name == "by url, top 25":
        breakdown = {"breakdown": "current_url", "breakdown_type": "event", "breakdown_limit": TOP}
        return node | {"series": [event("$pageview")], "breakdownFilter": breakdown}
    if query_name == "filtered sum":
        above = {"key": "amount", "type": "event", "operator": "gt", "value": 50}
        return node | {"series": [event(STEPS[1], math="sum", math_property="amount", properties=[above])]}
    math = {"daily total": "total", "daily uniques": "dau", "rolling 7-day uniques": "weekly_active"}[query_name]
    return node | {"series": [event(STEPS[0], math=math)]}


def read(query_name, result):
    """The result in the common form of all contenders."""
    if query_name == "weekly retention":
        return weeks_of({(week, distance): cell["count"] for week, row in enumerate(result) for distance, cell in enumerate(row["values"])})
    if query_name == "daily lifecycle":
        return statuses_of({(row["status"], day): abs(number) for row in result for day, number in zip(row["days"], row["data"])})
    if query_name == "stickiness":
        return bars_of(dict(zip(result[0]["days"], result[0]["data"])))
    if query_name == "paths":
        steps = [(*edge["source"].split("_", 1), edge["target"].split("_", 1)[1], edge) for edge in result]
        return edges_of([(int(number), source, target, edge["value"], edge["average_conversion_time"] * 1000)
                         for number, source, target, edge in steps])
    if query_name == "funnel by browser":
        counts = {rows[0]["breakdown_value"][0]: {"counts": [float(step["count"]) for step in rows]} for rows in result}
        counts.pop("Other", None)
        return counts
    if "funnel" in query_name:
        times = [step[kind] for step in result[1:] for kind in ("average_conversion_time", "median_conversion_time")]
        return {"counts": [float(step["count"]) for step in result], "seconds": times}
    series = {row.get("breakdown_value"): dict(zip(row["days"], row["data"])) for row in result}
    if query_name != "by url, top 25":
        return {day: number for day, number in next(iter(series.values())).items() if number}
    return {("other" if "breakdown_other" in value else value): {day: number for day, number in data.items() if number}
            for value, data in series.items()}


class Refused(Exception):
    """The query exceeds a limit of the product, which rejects it."""


class Pennon:
    name = "Pennon"

    def __init__(self, binary, work):
        self.binary, self.work, self.data = binary, work, work / "data"
        self.process = self.url = None

    def load(self, events):
        """Imports the events and compacts them fully, as peers are loaded. Returns seconds of the import, and bytes at
        rest; segments that the compaction replaced are kept for a while and are not counted."""
        work = self.work / "workspace.json"
        self.work.mkdir(parents=True, exist_ok=True)
        work.write_text(json.dumps(WORKSPACE))
        self.run("apply", work)
        began = time.perf_counter()
        self.run("import", events, "--project", "1")
        seconds = time.perf_counter() - began
        rest = sum(file.stat().st_size for file in (self.data / "events").rglob("*") if file.is_file())
        self.run("compact")
        return seconds, rest

    def run(self, command, *more):
        done = subprocess.run([self.binary, command, "--data", self.data, *more], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"pennon {command}: {done.stderr[-2000:]}")

    def start(self):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [self.binary, "serve", "--data", self.data, "--port", str(port)]
        self.process = Process(command, self.work / "server.log")
        self.process.wait_until(lambda: send_request(f"{self.url}/api/projects/1/feature_flags/", headers=HEADERS, timeout=5)[0] == 200)
        self.settle()

    def settle(self):
        """Waits until the server has no background work."""
        before, quiet = self.cpu(), 0
        for _ in range(3000):
            time.sleep(0.1)
            now = self.cpu()
            quiet = quiet + 1 if now - before < 0.001 else 0
            before = now
            if quiet == 5:
                return

    def cpu(self):
        spent = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                spent += int((task / "schedstat").read_text().split()[0])
            except OSError:  # it has ended
                continue
        return spent / 1e9

    def memory_mb(self):
        """Peak resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def run_query(self, query_name):
        """((CPU seconds, seconds), result); no cached result is used."""
        body = json.dumps({"query": query(query_name), "refresh": "force_blocking"})
        began, spent = time.perf_counter(), self.cpu()
        status, _, result = send_request(f"{self.url}/api/projects/1/query/", "POST", HEADERS, body)
        run = (self.cpu() - spent, time.perf_counter() - began)
        if status == 400:
            raise Refused(json.loads(result)["detail"])
        if status != 200:
            raise SystemExit(f"{query_name}: {status}: {result[:500]}")
        return run, read(query_name, json.loads(result)["results"])

    def stop(self):
        if self.process:
            self.process.stop()
