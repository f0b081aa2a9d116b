#!/usr/bin/env python3
"""Measures Pennon and Unleash alternately; prints a table. run.sh installs the requirements. Python 3.11, no packages."""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from load import measure
from processes import send_request, memory_mb
from servers import READS, WRITES, Pennon, Unleash

# Goal: ratio of Unleash's CPU time per request to Pennon's.
GOALS = {"list": 20, "get": 30, "feed gzip": 50, "feed 304": 3, "update": 4, "create": 4}


def report(text):
    print(text, file=sys.stderr, flush=True)


def start_twice(server, flags):
    """Starts with an empty database, fills it, stops, starts again: the figures of both starts, and idle memory."""
    first = server.start()
    server.seed(flags)
    server.stop(*([False] if isinstance(server, Unleash) else []))
    again = server.start()
    time.sleep(3)
    figures = {"first start s": first, "start s": again, "memory at rest MB": memory_mb(server.pids)}
    report(f"{server.name}: " + ", ".join(f"{name} {value:.2f}" for name, value in figures.items()))
    return figures


def one(server, operation, options, run, seconds):
    count = options.creates if operation == "create" else None
    requests = server.requests(operation, run, (count or 0) + options.connections)
    check = requests[-1]  # for create, one that the run will not send
    status, headers, body = send_request(server.url + check.path, check.method, check.headers | {"Content-Type": "application/json"}, check.body)
    if status not in {server.expected.get(operation, 201 if operation == "create" else 200)}:
        raise SystemExit(f"{server.name}: {operation} returned {status}: {body[:300]}")
    if operation == "feed gzip" and headers["Content-Encoding"] != "gzip":
        raise SystemExit(f"{server.name}: the feed is not compressed")
    result = measure(server, requests[:-1] if count else requests, options.connections, seconds, count)
    if operation == "create":
        server.remove(f"new-{run}-")
    return result


def run(servers, options):
    """{operation: {server: [Result, ...]}}; servers alternate, so that other load affects all of them."""
    results = defaultdict(lambda: defaultdict(list))
    for operations in (READS, WRITES):
        operations = [name for name in operations if not options.only or name in options.only]
        for repetition in range(options.repetitions + 1):
            for operation in operations:
                for server in servers:
                    warming = repetition == 0
                    result = one(server, operation, options, repetition, options.warm_up if warming else options.seconds)
                    if result.failed:
                        raise SystemExit(f"{server.name}: {result.failed} of {result.requests} requests of {operation} failed")
                    if not warming:
                        results[operation][server.name].append(result)
                        report(f"{operation:10} {server.name:8} {result.cpu_ms:8.3f} ms CPU {result.per_second:9.1f}/s "
                            f"p50 {result.p50_ms:8.2f} p99 {result.p99_ms:8.2f} ms  load {os.getloadavg()[0]:.1f}")
        time.sleep(1)
    return results


def median(results, field):
    return statistics.median(getattr(result, field) for result in results)


def spread(results):
    values = [result.cpu_ms for result in results]
    return (max(values) - min(values)) / statistics.median(values) * 100


def table(results, starts, servers):
    names = [server.name for server in servers]
    lines = ["| operation | " + " | ".join(f"{name}: CPU ms | requests/s | p50 ms | p99 ms | memory MB | CPU spread %" for name in names)
             + (" | CPU ratio | goal | p99 ratio |" if len(names) > 1 else " |")]
    lines.append("|---" * (lines[0].count("|") - 1) + "|")
    for operation, by in results.items():
        cells = [operation]
        for name in names:
            rows = by[name]
            cells += [f"{median(rows, 'cpu_ms'):.3f}", f"{median(rows, 'per_second'):.0f}", f"{median(rows, 'p50_ms'):.2f}",
                      f"{median(rows, 'p99_ms'):.2f}", f"{median(rows, 'memory_mb'):.0f}", f"{spread(rows):.0f}"]
        if len(names) > 1:
            ours, theirs = by[names[0]], by[names[1]]
            ratio = [median(theirs, field) / median(ours, field) for field in ("cpu_ms", "p99_ms")]
            cells += [f"{ratio[0]:.1f}", str(GOALS[operation]), f"{ratio[1]:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| | " + " | ".join(names) + (" | ratio |" if len(names) > 1 else " |")]
    lines.append("|---" * (len(names) + 1 + (len(names) > 1)) + "|")
    for figure in starts[names[0]]:
        values = [starts[name][figure] for name in names]
        ratio = f" {values[1] / values[0]:.1f} |" if len(names) > 1 else ""
        lines.append(f"| {figure} | " + " | ".join(f"{value:.2f}" for value in values) + f" |{ratio}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pennon", required=True, type=Path, help="the binary")
    parser.add_argument("--peers", type=Path, help="folder with node_modules of Unleash and Node")
    parser.add_argument("--postgres", type=Path, help="folder of PostgreSQL's programs")
    parser.add_argument("--ours-only", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one repetition of two seconds")
    parser.add_argument("--only", type=lambda text: text.split(","), help="operations, separated by commas")
    parser.add_argument("--flags", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--creates", type=int, default=1000, help="flags made by one repetition of create")
    parser.add_argument("--json", type=Path, help="file for every single result")
    options = parser.parse_args()
    if options.quick:
        options.repetitions, options.seconds = 1, 2

    with tempfile.TemporaryDirectory(prefix="flags-") as work:
        work = Path(work)
        work.chmod(0o711)  # PostgreSQL's user passes through
        servers = [Pennon(work, options.pennon.resolve())]
        if not options.ours_only:
            servers.append(Unleash(work, options.peers.resolve(), options.postgres))
        try:
            starts = {server.name: start_twice(server, options.flags) for server in servers}
            results = run(servers, options)
        finally:
            for server in servers:
                server.stop()
    model = next((line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} x {model}, {options.flags} flags, {options.connections} connections, "
          f"{options.repetitions} repetitions of {options.seconds} s, load {os.getloadavg()[1]:.1f}\n")
    print(table(results, starts, servers))
    if options.json:
        options.json.write_text(json.dumps({op: {name: [vars(r) for r in rows] for name, rows in by.items()} for op, by in results.items()}, indent=1))


if __name__ == "__main__":
    main()
