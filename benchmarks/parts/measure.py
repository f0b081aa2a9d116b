#!/usr/bin/env python3
"""The first queries of a server, undivided and in parts: wall time, CPU time and bytes of the server and its processes together.

    measure.py PENNON DATA [--events 10000000] [--runs 5] [--parts 1,2,4] [--only PART_OF_A_NAME]

PENNON is the program; DATA is a data directory with the events of `benchmarks/events`, which no server has open. Each run starts a
server, so nothing is cached, and includes the start of the processes. 1 is an undivided query. Every result is compared with the
undivided one. Needs Linux."""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "events"))

from pennon import HEADERS, query  # noqa: E402

# Events with the names of a query, of the ten million: those that it reads.
ROWS = {"funnel": 1_565_303, "daily uniques": 1_331_631, "by url, top 25": 3_096_577}
PATIENCE = 60
TICKS = os.sysconf("SC_CLK_TCK")


def tree(process):
    """The process and all that it has started."""
    # Each thread has its own children.
    children = [child for thread in Path(f"/proc/{process}/task").iterdir() for child in (thread / "children").read_text().split()]
    return [process] + [one for child in children for one in tree(int(child))]


def cpu_of(process):
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Server:
    def __init__(self, options, name, parts, log):
        (options.data / "server.json").unlink(missing_ok=True)
        command = [options.pennon, "serve", "--data", str(options.data), "--port", "0"]
        if parts > 1:
            # A little more, because other numbers of events have other shares of each name.
            rows = ROWS[name] * options.events / 10_000_000 * 1.02
            command += ["--parts", str(parts), "--rows-per-part", str(int(rows / parts) + 1)]
        environment = {**os.environ, "PENNON_LOG": "info", "NO_COLOR": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, env=environment)
        end = time.monotonic() + PATIENCE
        while not (options.data / "server.json").exists():
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit("the server does not start; is another one on its data?")
            time.sleep(0.02)
        self.url = json.loads((options.data / "server.json").read_text())["http"]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)


def run(options, name, parts):
    log_path = options.data.parent / "parts.log"
    with open(log_path, "wb") as log:
        server = Server(options, name, parts, log)
        try:
            body = json.dumps({"query": query(name), "refresh": "force_blocking"}).encode()
            request = urllib.request.Request(f"{server.url}/api/projects/1/query/", body, HEADERS)
            before, began = cpu_of(server.process.pid), time.monotonic()
            with urllib.request.urlopen(request) as response:
                results = json.load(response)["results"]
            wall = time.monotonic() - began
            cpu = sum(cpu_of(process) for process in tree(server.process.pid)) - before
        finally:
            server.stop()
    lines = log_path.read_text(errors="replace").splitlines()
    divided = [line for line in lines if "a query was calculated in parts" in line]
    if bool(divided) != (parts > 1):
        raise SystemExit(f"{name} in {parts} parts: {log_path} has {len(divided)} queries in parts")
    read = divided or [line for line in lines if "events scanned" in line]
    return {"wall": wall, "cpu": cpu, "bytes": sum(int(re.search(r"bytes_read=(\d+)", line)[1]) for line in read), "results": results}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pennon")
    parser.add_argument("data", type=lambda text: Path(text).resolve())
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--parts", default="1,2,4", type=lambda text: [int(one) for one in text.split(",")])
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    print("| query | parts | response ms | CPU ms | of one | MB | of one |")
    print("|---|---|---|---|---|---|---|")
    for name in ROWS:
        if options.only not in name:
            continue
        one = None
        for parts in options.parts:
            runs = [run(options, name, parts) for _ in range(options.runs)]
            middle = {key: statistics.median(it[key] for it in runs) for key in ("wall", "cpu", "bytes")}
            one = one or {**middle, "results": runs[0]["results"]}
            if any(it["results"] != one["results"] for it in runs):
                raise SystemExit(f"{name} in {parts} parts has another result")
            cpu, size = middle["cpu"] / one["cpu"], middle["bytes"] / one["bytes"]
            print(f"| {name} | {parts} | {middle['wall'] * 1e3:.0f} | {middle['cpu'] * 1e3:.0f} | {cpu:.2f} | {middle['bytes'] / 1e6:.1f} | {size:.2f} |", flush=True)


if __name__ == "__main__":
    main()
