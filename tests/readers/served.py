"""Checks of queries that a ClickHouse server calculates: for `pennon query --url`, and for `pennon serve` if they exceed its memory."""

import json
import math
import os
import subprocess
import time
import urllib.error
import urllib.request

import queries
from clickhouse_server import PASSWORD
from pennon import KEY, Installation

NOW = ["--now", "2024-07-01T00:00:00Z"]
# Half a megabyte for the events of a query, which are more than so many.
SMALL, LARGE, EVENTS = "1", "512", 60_000
LARGE_QUERIES = {
    "a trend": queries.trend([queries.event("a", math="dau"), queries.event("b")], breakdown=queries.BY_PLAN),
    "a funnel": queries.funnel(queries.ABC, breakdown=queries.BY_PLAN),
    "a stickiness": queries.stickiness([queries.event(None)]),
}
# Reads as many events as the others, and has no statement.
UNORDERED = queries.funnel(queries.ABC, more={"funnelOrderType": "unordered"})
# Responses that are no rows, and rows of another statement.
GARBAGE = ("<html>", "", '{"meta": [], "data": [], "rows": 0}')


def difference(left, right, path="result"):
    """Where two JSON values differ, beyond the last digits of fractions; None where they are equal."""
    if isinstance(left, float) or isinstance(right, float):
        numbers = all(isinstance(value, (int, float)) for value in (left, right))
        return None if numbers and math.isclose(left, right, rel_tol=1e-12, abs_tol=1e-9) else f"{path}: {left} and {right}"
    if type(left) is not type(right):
        return f"{path}: {left} and {right}"
    if isinstance(left, dict):
        if list(left) != list(right):
            return f"{path}: {list(left)} and {list(right)}"
        return next(filter(None, (difference(left[key], right[key], f"{path}.{key}") for key in left)), None)
    if isinstance(left, list):
        if len(left) != len(right):
            return f"{path}: {len(left)} and {len(right)} items"
        pairs = enumerate(zip(left, right))
        return next(filter(None, (difference(a, b, f"{path}[{at}]") for at, (a, b) in pairs)), None)
    return None if left == right else f"{path}: {left!r} and {right!r}"


def query(installation, node, *more, variables=None, refused=False):
    return installation.run("query", installation.query_file(node), *NOW, *more, variables=variables, refused=refused)


def compare_whole(name, installation, node, server):
    """Compares the whole JSON of both engines."""
    clickhouse = ("--engine", "clickhouse", "--url", server.url)
    own = json.loads(query(installation, node, "--json"))
    served = json.loads(query(installation, node, "--json", *clickhouse, variables=server.variables()))
    differs = difference(own, served, "response")
    if differs:
        raise AssertionError(f"{name}, on a server: {differs}")


def expect(what, text, *parts):
    """An error if `text` lacks a part, or has the password."""
    if not all(part in text for part in parts) or PASSWORD in text:
        raise AssertionError(f"{what}: {text!r}, where {parts} should be named, and no password")


def check_command(installation, node, server):
    """Tables and errors of `pennon query --url`."""
    clickhouse = ("--engine", "clickhouse")
    for form in ([], ["--csv"]):
        own, served = query(installation, node, *form), query(installation, node, *form, *clickhouse, variables=server.variables())
        if own != served:
            raise AssertionError(f"{form}: {own!r} and {served!r}")
    if any(PASSWORD in path or "max_execution_time=" not in path for path, _ in server.requests):
        raise AssertionError(f"addresses of requests: {server.requests}")

    def refusal(node, *more, variables):
        return query(installation, node, *more, variables=variables, refused=True)

    wrong = refusal(node, *clickhouse, variables=server.variables("another"))
    expect("a wrong password", wrong, server.url, "HTTP 403", "Authentication failed")
    for garbage in GARBAGE:
        with server.returning(garbage):
            expect(garbage, refusal(node, *clickhouse, variables=server.variables()), "no result of the statement")
    down = refusal(node, *clickhouse, "--url", "http://127.0.0.1:1", variables=server.variables())
    expect("no server", down, "http://127.0.0.1:1", "refused")
    before = len(server.requests)
    for what, node_without in queries.REFUSED.items():
        expect(what, refusal(node_without, *clickhouse, variables=server.variables()), what, "ClickHouse")
    private = {"PENNON_CLICKHOUSE_URL": f"http://reader:{'x' * 8}@127.0.0.1"}
    error = refusal(node, *clickhouse, variables=private)
    expect("a password in the address", error, "PENNON_CLICKHOUSE_PASSWORD")
    if "xxxxxxxx" in error:
        raise AssertionError(error)
    expect("no server named", refusal(node, *clickhouse, variables={}), "--url", "--print")
    expect("the other engine", refusal(node, "--url", server.url, variables={}), "--engine clickhouse")
    cluster = refusal(node, *clickhouse, "--cluster", "main", variables=server.variables())
    expect("a cluster without a bucket", cluster, "main", "--files")
    printed = query(installation, node, *clickhouse, "--print", "--cluster", "main", "--files", "s3://bucket/events", variables={})
    expect("a cluster", printed, "s3Cluster('main', 'https://bucket.s3.amazonaws.com/events/")
    if len(server.requests) != before:
        raise AssertionError("a refused query was sent")


class Pennon:
    """`pennon serve` on the data of an installation."""

    def __init__(self, installation, megabytes, variables):
        self.log = installation.directory.parent / "serve.log"
        address = installation.directory / "server.json"
        with open(self.log, "wb") as log:
            command = [installation.binary, "serve", "--data", installation.directory, "--port", "0", "--dynamodb-port", "0",
                       "--no-demo"]
            environment = {**os.environ, **variables, "PENNON_EVENTS_MEMORY_MB": megabytes}
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        end = time.monotonic() + 60
        while not address.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"pennon serve does not start: {self.log.read_text()}")
            time.sleep(0.05)
        self.url = json.loads(address.read_text())["http"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)

    def post(self, path, body, key=KEY):
        """Status and JSON of a response."""
        request = urllib.request.Request(f"{self.url}{path}", json.dumps(body).encode(), {
            "Content-Type": "application/json", "Authorization": f"Bearer {key}"})
        try:
            with urllib.request.urlopen(request) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def calculate(self, node, refresh="blocking"):
        return self.post("/api/projects/1/query/", {"query": node, "refresh": refresh})


def check_serve(binary, place, server):
    """Queries that exceed the memory of `pennon serve`."""
    shop = Installation(binary, place / "large")
    shop.load(list(queries.history(77, persons=400, events=EVENTS)))
    refused, served = {}, {}
    with Pennon(shop, SMALL, {}) as alone:
        for name, node in LARGE_QUERIES.items():
            status, refused[name] = alone.calculate(node)
            expect(f"{name} without ClickHouse", f"{status} {refused[name]}", "400", "PENNON_EVENTS_MEMORY_MB")
    with Pennon(shop, SMALL, server.variables()) as small:
        server.requests.clear()
        for name, node in LARGE_QUERIES.items():
            status, served[name] = small.calculate(node)
            if status != 200 or served[name]["is_cached"]:
                raise AssertionError(f"{name}: {status} {served[name]}")
            if small.calculate(node)[1]["is_cached"] is not True:
                raise AssertionError(f"{name}: the result is not cached")
        if len(server.requests) != len(LARGE_QUERIES):
            raise AssertionError(f"{len(server.requests)} statements")
        tiny = queries.trend([queries.event("no such event")])
        if small.calculate(tiny)[0] != 200 or len(server.requests) != len(LARGE_QUERIES):
            raise AssertionError("a small query went to ClickHouse")
        status, error = small.calculate(UNORDERED)
        expect("a query without a statement", f"{status} {error}", "400", "PENNON_EVENTS_MEMORY_MB", "a funnel in any order")
        for garbage in GARBAGE:
            with server.returning(garbage):
                status, error = small.calculate(LARGE_QUERIES["a funnel"], "force_blocking")
            expect(garbage, f"{status} {error}", "503", "clickhouse_unavailable")
        check_waiting(small)
        log = small.log.read_text()
        expect("the log", log, "no result of the statement")
    shop.run("compact")
    with Pennon(shop, SMALL, server.variables("another")) as locked_out:
        status, error = locked_out.calculate(LARGE_QUERIES["a funnel"], "force_blocking")
        expect("a wrong password", f"{status} {error}", "503", "clickhouse_unavailable")
        expect("the log", locked_out.log.read_text(), "Authentication failed")
        if "another" in locked_out.log.read_text():
            raise AssertionError("the log has the password")
    with Pennon(shop, LARGE, {}) as large:
        for name, node in LARGE_QUERIES.items():
            status, own = large.calculate(node, "force_blocking")
            differs = f"{status}" if status != 200 else difference(own["results"], served[name]["results"])
            differs = differs or difference(own["hasMore"], served[name]["hasMore"], "hasMore")
            if differs:
                raise AssertionError(f"{name}, which exceeds the memory: {differs}")
    return len(LARGE_QUERIES)


def check_waiting(small):
    """An event that was just captured is in no file, so ClickHouse would miss it. Compaction may be faster than the query."""
    for attempt in range(20):
        event = {"api_key": "phc_readers", "event": "a", "distinct_id": f"late-{attempt}", "timestamp": "2024-01-15T12:00:00Z"}
        if small.post("/capture/", event)[0] != 200:
            raise AssertionError("the event was not captured")
        status, error = small.calculate(LARGE_QUERIES["a trend"], "force_blocking")
        if status == 400:
            return expect("waiting events", str(error), "PENNON_EVENTS_MEMORY_MB", "in no file")
    raise AssertionError(f"no query while an event was waiting: {status} {error}")
