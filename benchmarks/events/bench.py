#!/usr/bin/env python3
"""Event queries, Pennon against ClickHouse, DuckDB and Polars. README.md describes the measurements."""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from generate import generate
from pennon import Pennon, Refused
from queries import GOALS, QUERIES, check

HERE = Path(__file__).parent


def peer(name, data, work, repeat):
    """The output lines of a peer."""
    command = [sys.executable, HERE / "peers.py", name, "--data", data, "--work", work, "--repeat", str(repeat)]
    print(f"{name} ...", file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    shutil.rmtree(work, ignore_errors=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode:
        # A peer may run out of memory: its results until then count.
        print(f"{name} ended early, status {done.returncode}", file=sys.stderr, flush=True)
    return lines


def pennon(binary, data, work, repeat, cold, keep):
    """The lines of Pennon: every query cold, in a newly started server, then warm."""
    print("pennon ...", file=sys.stderr, flush=True)
    if not keep:
        shutil.rmtree(work, ignore_errors=True)
    server = Pennon(binary, work)
    lines = []
    try:
        seconds, size = (None, None) if keep and server.data.exists() else server.load(data)
        lines.append({"peer": "Pennon", "bytes": size, "load_seconds": seconds})
        cold_runs = {query_name: [] for query_name in QUERIES}
        for _ in range(cold):
            for query_name in QUERIES:
                server.start()
                try:
                    cold_runs[query_name].append(server.run_query(query_name)[0])
                except Refused as refusal:
                    lines.append({"peer": "Pennon", "refused": query_name, "why": str(refusal)})
                server.stop()
        server.start()
        for query_name in filter(cold_runs.get, QUERIES):
            server.run_query(query_name)
            runs = [server.run_query(query_name) for _ in range(4 * repeat)]
            lines.append({"peer": "Pennon", "query": query_name, "variant": "", "runs": [run for run, _ in runs],
                          "cold": cold_runs[query_name], "result": runs[0][1]})
        lines.append({"peer": "Pennon", "peak_mb": server.memory_mb()})
    finally:
        server.stop()
    return lines


def median(runs, index):
    return statistics.median(run[index] for run in runs)


def spread(runs):
    """Interquartile range of the CPU times, in per cent of the median."""
    times = sorted(run[0] for run in runs)
    return 100 * (times[3 * len(times) // 4] - times[len(times) // 4]) / max(median(runs, 0), 1e-9)


def compared(query_name, other, warm, cold):
    """The columns with the ratios of a peer's line to Pennon's."""
    theirs = median(other["runs"], 0)
    goals = GOALS[query_name].get((other["peer"], other["variant"]), (None, None))
    cells = []
    for ours, goal in ((warm, goals[0]), (cold, goals[1])):
        ratio = theirs / ours
        verdict = "" if goal is None else f" (goal {goal}: {'reached' if ratio >= goal else '**missed**'})"
        cells.append(f"{ratio:.1f}{verdict}")
    return cells


def table(lines):
    print("| query | contender | CPU ms | spread % | wall ms | ratio to Pennon warm | to Pennon cold |")
    print("|---|---|---|---|---|---|---|")
    for query_name in QUERIES:
        of = [line for line in lines if line.get("query") == query_name]
        if refused := next((line["why"] for line in lines if line.get("refused") == query_name), None):
            print(f"| {query_name} | Pennon | refused: {refused} | | | | |")
            continue
        check(query_name, [(f"{line['peer']} {line['variant']}", line["result"]) for line in of])
        ours = next(line for line in of if line["peer"] == "Pennon")
        warm, cold = median(ours["runs"], 0), median(ours["cold"], 0)
        row = [query_name, "Pennon warm", f"{warm * 1e3:.1f}", f"{spread(ours['runs']):.0f}", f"{median(ours['runs'], 1) * 1e3:.1f}", "", ""]
        print(f"| {' | '.join(row)} |")
        row = ["", "Pennon cold", f"{cold * 1e3:.1f}", f"{spread(ours['cold']):.0f}", f"{median(ours['cold'], 1) * 1e3:.1f}", "", ""]
        print(f"| {' | '.join(row)} |")
        for line in of:
            if line["peer"] != "Pennon":
                runs = line["runs"]
                name = f"{line['peer']} {line['variant']}".strip()
                row = ["", name, f"{median(runs, 0) * 1e3:.1f}", f"{spread(runs):.0f}", f"{median(runs, 1) * 1e3:.1f}"]
                print(f"| {' | '.join(row + compared(query_name, line, warm, cold))} |")
    print("\n| contender | version | MB at rest | MB resident at most |\n|---|---|---|---|")
    names = dict.fromkeys(line["peer"] for line in lines)
    for name in names:
        of = {key: value for line in lines if line["peer"] == name for key, value in line.items()}
        size = f"{of['bytes'] / 1e6:.0f}" if of.get("bytes") else ""
        print(f"| {name} | {of.get('version', '')} | {size} | {of.get('peak_mb', 0):.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("events", type=int)
    parser.add_argument("--pennon", required=True, help="the binary")
    parser.add_argument("--work", type=Path, default=HERE / ".work", help="where events and databases are put")
    parser.add_argument("--repeat", type=int, default=7, help="repetitions of a peer; Pennon, warm, has four times as many")
    parser.add_argument("--cold", type=int, default=3, help="starts of the server for each query")
    parser.add_argument("--peers", default="clickhouse,duckdb,polars")
    parser.add_argument("--keep", action="store_true", help="use the installation that an earlier run left")
    parser.add_argument("--json", type=Path, help="keep every result in this file")
    options = parser.parse_args()
    data = options.work / f"events-{options.events}.parquet"
    generate(options.events, data)
    work = options.work / str(options.events)
    lines = pennon(options.pennon, data, work / "pennon", options.repeat, options.cold, options.keep)
    for name in filter(None, options.peers.split(",")):
        lines += peer(name, data, work / name, options.repeat)
    if options.json:
        options.json.write_text(json.dumps(lines))
    print(f"{options.events:,} events, {os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()[0]:.1f}\n")
    table(lines)


if __name__ == "__main__":
    main()
