#!/usr/bin/env python3
"""Builds and runs all test programs of the workspace, several at once: many tests wait for processes and timers, so that one program
alone leaves a core idle.

    run_tests.py [--jobs 2] [-- OPTIONS OF CARGO TEST]

The output of a program is printed when it ends. The exit status is 1 if a test failed. Programs run in the folder of their package, as
cargo runs them."""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The longest ones, which begin first.
LONGEST = ("http", "process", "suite")


def test_programs(options):
    """(name, folder of the package, program) of each test program, which are built if needed."""
    command = ["cargo", "test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics", *options]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if built.returncode:
        sys.exit(built.returncode)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    programs = [(it["target"]["name"], Path(it["manifest_path"]).parent, it["executable"])
                for it in messages if it["reason"] == "compiler-artifact" and it["profile"]["test"] and it["executable"]]
    return sorted(programs, key=lambda it: (LONGEST.index(it[0]) if it[0] in LONGEST else len(LONGEST), it[2]))


def run(program):
    """(name, seconds, status, output)"""
    name, folder, path = program
    began = time.monotonic()
    done = subprocess.run([path], cwd=folder, env=os.environ | {"CARGO_MANIFEST_DIR": str(folder)},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    return f"{folder.relative_to(ROOT)}: {name}", time.monotonic() - began, done.returncode, done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, help="programs at the same time")
    parser.add_argument("options", nargs="*", help="options of cargo test")
    arguments = parser.parse_args()
    programs = test_programs(arguments.options)
    failed, seconds_of = [], {}
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(run, program) for program in programs]):
            name, seconds, status, output = done.result()
            print(f"-- {name}, {seconds:.0f} s\n{output.strip()}\n", flush=True)
            seconds_of[name] = seconds
            if status:
                failed.append(name)
    for name, seconds in sorted(seconds_of.items(), key=lambda it: -it[1])[:8]:
        print(f"{seconds:5.0f} s  {name}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
