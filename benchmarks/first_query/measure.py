#!/usr/bin/env python3
"""The first query of a function that has just started, over a bucket with the latency of an object store.

    measure.py CALCULATION PENNON DATA [--runs 5] [--first-byte-ms 15] [--megabytes 80] [--only PART_OF_A_NAME]

CALCULATION is the function's binary, PENNON the program; DATA is a data directory with the events of `benchmarks/events`, which
no server has open; its tables record the queries. The function's log is `function.log` beside DATA. Needs Linux and two cores: the
function runs on core 0, tables and bucket on the others. For each query: wall time from
the start of the process to the response and of the response alone, CPU time, requests to the bucket, their bytes, and how many were
on the way at once. How often reads depend on reads before is a test: `shared/eventstore/tests/suite/read_rounds.rs`."""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "lambda"), str(ROOT / "benchmarks" / "events")]

import events  # noqa: E402
from pennon import HEADERS, query  # noqa: E402
from runtime import Function  # noqa: E402

QUERIES = ["funnel", "funnel by browser", "daily total", "daily uniques", "by url, top 25", "filtered sum"]
PATIENCE = 60


def pinned(cores, command):
    return ["taskset", "-c", ",".join(map(str, cores)), *map(str, command)]


class LocalServer:
    """The tables of a data directory: those of a local server, which runs no query."""

    def __init__(self, pennon, data, cores):
        (data / "server.json").unlink(missing_ok=True)
        command = pinned(cores, [pennon, "serve", "--data", data, "--port", "0"])
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + PATIENCE
        while not (data / "server.json").exists():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                raise SystemExit(f"the local server does not start: pennon serve --data {data}")
            time.sleep(0.05)
        self.info = json.loads((data / "server.json").read_text())

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)


class Bucket:
    def __init__(self, directory, cores, options):
        command = [sys.executable, HERE / "bucket.py", directory, "--first-byte-ms", options.first_byte_ms, "--megabytes", options.megabytes]
        self.process = subprocess.Popen(pinned(cores, command), stdout=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}"

    def requests(self):
        with urllib.request.urlopen(f"{self.url}/requests") as response:
            return json.load(response)

    def stop(self):
        self.process.kill()
        self.process.wait()


def at_once(requests):
    """The most requests that were on the way at one time."""
    changes = sorted([(began, 1) for *_, began, _ in requests] + [(ended, -1) for *_, ended in requests])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def cpu_of(process):
    spent = 0
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        spent += int((task / "schedstat").read_text().split()[0])
    return spent / 1e9


def run(binary, environment, name, bucket, log):
    """Starts the function and sends it one query."""
    body = json.dumps({"query": query(name), "refresh": "force_blocking"}).encode()
    headers = list(HEADERS.items())
    event = events.http_api(events.Request("POST", "/api/projects/1/query/", [], headers, body))
    bucket.requests()
    began = time.monotonic()
    with Function(pinned([0], [binary]), "calculation", environment, 1769, log=log) as function:
        outcome = function.invoke(event)
        ended = time.monotonic()
        response = outcome.value()
        cpu = cpu_of(function.process)
    if response["statusCode"] != 200:
        raise SystemExit(f"{name}: {response['statusCode']}: {response['body'][:500]}")
    requests = [request for request in bucket.requests() if request[0] == "GET"]
    return {"start": ended - began, "response": outcome.seconds, "cpu": cpu, "gets": len(requests),
            "bytes": sum(request[2] for request in requests), "at_once": at_once(requests)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("calculation")
    parser.add_argument("pennon")
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--first-byte-ms", default="15")
    parser.add_argument("--megabytes", default="80")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if (os.cpu_count() or 1) < 2:
        raise SystemExit("the function needs a core of its own: two cores at least")
    data, others = options.data.resolve(), range(1, os.cpu_count())
    tables = LocalServer(options.pennon, data, others)
    try:
        measure(options, data, tables, others)
    finally:
        tables.stop()


def measure(options, data, tables, others):
    bucket = Bucket(data / "events", others, options)
    environment = {
        "AWS_ENDPOINT_URL_DYNAMODB": tables.info["dynamodb"], "AWS_ENDPOINT_URL_S3": bucket.url, "AWS_ENDPOINT": bucket.url,
        "AWS_ACCESS_KEY_ID": tables.info["access_key_id"], "PENNON_RECORDS_TABLE": "pennon-records",
        "PENNON_BLOCKS_TABLE": "pennon-blocks", "PENNON_EVENTS_URL": "s3://events", "PENNON_LOG": "info", "MALLOC_ARENA_MAX": "2",
        "PENNON_RATE_LIMITS": "off", "PENNON_PAYLOAD_KEY": (data / "payload.key").read_text().strip(),
    }
    log = data.parent / "function.log"
    try:
        print("| query | start to response ms | response ms | range % | CPU ms | GETs | MB | at once |")
        print("|---|---|---|---|---|---|---|---|")
        for name in (name for name in QUERIES if options.only in name):
            runs = [run(options.calculation, environment, name, bucket, log) for _ in range(options.runs)]
            middle = {key: statistics.median(it[key] for it in runs) for key in runs[0]}
            times = [it["response"] for it in runs]
            extent = (max(times) - min(times)) / middle["response"] * 100
            print(f"| {name} | {middle['start'] * 1e3:.0f} | {middle['response'] * 1e3:.0f} | {extent:.0f} | {middle['cpu'] * 1e3:.0f} "
                  f"| {middle['gets']:.0f} | {middle['bytes'] / 1e6:.1f} | {middle['at_once']:.0f} |", flush=True)
    finally:
        bucket.stop()


if __name__ == "__main__":
    main()
