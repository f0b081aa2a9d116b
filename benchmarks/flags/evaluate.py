#!/usr/bin/env python3
"""Measures how Pennon, Unleash and Unleash Edge evaluate all flags for one user with a public token, alternately; prints a
table. `run.sh --evaluate` installs the requirements. Python 3.11, no packages."""

import argparse
import json
import os
import platform
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from bench import median, report, spread
from edge import FRONTEND, USERS, Edge, evaluation, wait_for_evaluation
from load import measure
from processes import send_request
from servers import Pennon, Unleash

ENCODINGS = ["identity", "gzip"]
# Goals: Pennon's CPU time per request is at most these fractions of the others', and its p99 at most that fraction of Unleash's.
CPU_GOALS = {"Unleash": 1 / 10, "Edge": 1}
P99_GOAL = 1 / 2


def body_size(server, encoding):
    """Bytes of a response; the encoding must be the requested one."""
    request = evaluation(server, 1, encoding)
    headers = request.headers | ({"Content-Type": "application/json"} if request.body else {})
    status, headers, body = send_request(server.url + request.path, request.method, headers, request.body)
    if status != 200 or headers.get("Content-Encoding", "identity") != encoding:
        raise SystemExit(f"{server.name}: {status}, encoded as {headers.get('Content-Encoding')}, requested {encoding}")
    return len(body)


def run(servers, options):
    """{encoding: {server: [Result, ...]}}; servers alternate, and the first round is not counted."""
    results = defaultdict(lambda: defaultdict(list))
    for repetition in range(options.repetitions + 1):
        for encoding in ENCODINGS:
            for server in servers:
                requests = [evaluation(server, user, encoding) for user in range(USERS)]
                result = measure(server, requests, options.connections, options.seconds if repetition else options.warm_up)
                if result.failed:
                    raise SystemExit(f"{server.name}: {result.failed} of {result.requests} requests failed")
                if repetition:
                    results[encoding][server.name].append(result)
                    report(f"{encoding:8} {server.name:8} {result.cpu_ms:8.3f} ms CPU {result.per_second:9.1f}/s "
                        f"p50 {result.p50_ms:8.2f} p99 {result.p99_ms:8.2f} ms  load {os.getloadavg()[0]:.1f}")
    return results


def table(results, sizes):
    lines = ["| response | server | CPU ms | CPU spread % | requests/s | p50 ms | p99 ms | memory MB | KB | CPU, times Pennon's | p99, times Pennon's | goals |",
             "|---" * 12 + "|"]
    for encoding, by in results.items():
        ours = by["Pennon"]
        for name, rows in by.items():
            cpu, p99 = (median(rows, field) / median(ours, field) for field in ("cpu_ms", "p99_ms"))
            goals = "" if name == "Pennon" else f"CPU {1 / CPU_GOALS[name]:.0f}" + (f", p99 {1 / P99_GOAL:.0f}" if name == "Unleash" else "")
            cells = [encoding, name, f"{median(rows, 'cpu_ms'):.3f}", f"{spread(rows):.0f}", f"{median(rows, 'per_second'):.0f}",
                     f"{median(rows, 'p50_ms'):.2f}", f"{median(rows, 'p99_ms'):.2f}", f"{median(rows, 'memory_mb'):.0f}",
                     f"{sizes[name, encoding] / 1000:.1f}", f"{cpu:.1f}", f"{p99:.1f}", goals]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def start_all(work, options):
    """The servers, filled with the same flags."""
    pennon = Pennon(work, options.pennon.resolve())
    servers = [pennon]
    try:
        pennon.start()
        pennon.seed(options.flags)
        if not options.ours_only:
            unleash = Unleash(work, options.peers.resolve(), options.postgres)
            servers.append(unleash)
            unleash.start(environment={"INIT_FRONTEND_API_TOKENS": FRONTEND})
            unleash.seed(options.flags)
            edge = Edge(work, options.peers.resolve() / "edge" / "bin" / "unleash-edge", unleash)
            servers.append(edge)
            edge.start()
        for server in servers:
            wait_for_evaluation(server, options.flags)
    except BaseException:
        stop_all(servers)
        raise
    return servers


def stop_all(servers):
    for server in reversed(servers):
        server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pennon", required=True, type=Path, help="the binary")
    parser.add_argument("--peers", type=Path, help="folder with node_modules of Unleash and Node, and with edge/bin/unleash-edge")
    parser.add_argument("--postgres", type=Path, help="folder of PostgreSQL's programs")
    parser.add_argument("--ours-only", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one repetition of two seconds")
    parser.add_argument("--flags", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file for every single result")
    options = parser.parse_args()
    if options.quick:
        options.repetitions, options.seconds = 1, 2

    with tempfile.TemporaryDirectory(prefix="evaluate-") as work:
        work = Path(work)
        work.chmod(0o711)  # PostgreSQL's user passes through
        servers = start_all(work, options)
        try:
            sizes = {(server.name, encoding): body_size(server, encoding) for server in servers for encoding in ENCODINGS}
            results = run(servers, options)
        finally:
            stop_all(servers)
    model = next((line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} x {model}, {options.flags} flags, {options.connections} connections, "
          f"{options.repetitions} repetitions of {options.seconds} s, load {os.getloadavg()[1]:.1f}\n")
    print(table(results, sizes))
    if options.json:
        options.json.write_text(json.dumps(
            {encoding: {name: [vars(row) for row in rows] for name, rows in by.items()} for encoding, by in results.items()}, indent=1))


if __name__ == "__main__":
    main()
