#!/usr/bin/env python3
"""Size and start time of the functions as deployed, in the emulated Lambda of tests/lambda.

    measure.py build DIRECTORY                 builds the bare function's package beside those of the functions
    measure.py sizes DIRECTORY [--write]       compares packages with sizes.json; exit status 1 when one has grown by a fifth
    measure.py start DIRECTORY PENNON [--runs 15] [--json FILE]     starts each, prints a table

DIRECTORY contains NAME/bootstrap.zip of each function (`build_packages` of .ci/full). The baseline is `bare/`: the
same libraries, one route, one GetItem. Times depend on the machine and fail no check; sizes do.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "lambda"))

import events  # noqa: E402
from check_loop import ORGANIZATION, Server  # noqa: E402
from runtime import Function  # noqa: E402

FUNCTIONS = ("flags", "role_access", "insights", "calculation", "projects", "capture", "reference")
SIZES, GROWTH_MAX = HERE / "sizes.json", 1.2
# Goals: multiples of the bare function's binary; milliseconds.
RATIO_GOALS = {"role_access": 1.05, "projects": 1.05}
RATIO_GOAL, FIRST_POLL_GOAL, FIRST_RESPONSE_GOAL = 1.75, 10, 20
P = "/api/projects/1"


def build(directory):
    """With the settings and the dependency versions of deployed functions."""
    strangers = packages_of(HERE / "bare" / "Cargo.lock") - packages_of(ROOT / "Cargo.lock") - {"bare"}
    if strangers:
        sys.exit(f"bare/Cargo.lock has other versions than Cargo.lock: {sorted(strangers)}")
    settings = ROOT / "functions" / ".cargo" / "config.toml"
    subprocess.run(["cargo", "lambda", "build", "--quiet", "--release", "--locked", "--config", str(settings), "--output-format", "zip",
                    "--lambda-dir", str(Path(directory).resolve())], cwd=HERE / "bare", check=True)


def packages_of(lock):
    packages = tomllib.loads(lock.read_text())["package"]
    return {package["name"] if "source" not in package else f"{package['name']} {package['version']}" for package in packages}


def sizes_of(directory):
    """`{name: [bytes of the binary, bytes of the zip]}` of the existing packages."""
    found = {}
    for name in (*FUNCTIONS, "bare"):
        package = Path(directory) / name / "bootstrap.zip"
        if package.exists():
            with zipfile.ZipFile(package) as archive:
                found[name] = [archive.getinfo("bootstrap").file_size, package.stat().st_size]
    return found


def growth(known, found):
    """Findings: packages that have grown too much, or have no recorded size."""
    for name, sizes in found.items():
        for what, before, now in zip(("binary", "zip"), known.get(name, (None, None)), sizes):
            if before is None:
                yield f"{name}: no {what} is known in {SIZES.name}; add it with --write"
            elif now > before * GROWTH_MAX:
                yield f"{name}: the {what} has {now / 1e6:.2f} MB after {before / 1e6:.2f} MB"


def sizes(directory, write):
    machine, found = platform.machine(), sizes_of(directory)
    all_known = json.loads(SIZES.read_text()) if SIZES.exists() else {}
    if write:
        all_known[machine] = {**all_known.get(machine, {}), **found}
        SIZES.write_text(json.dumps(all_known, indent=1, sort_keys=True) + "\n")
    print(f"{'function':14}{'binary':>10}{'zip':>10}")
    for name, (binary, package) in found.items():
        print(f"{name:14}{binary / 1e6:7.1f} MB{package / 1e6:7.1f} MB")
    missing = [f"{name} has no package" for name in (*FUNCTIONS, "bare") if name not in found]
    if machine not in all_known:
        print(f"no sizes are known of {machine}")
        return missing
    return missing + list(growth(all_known[machine], found))


def first_requests(server, key):
    """The request to each function: one that reads the table, if it has one."""
    bearer = [("Authorization", f"Bearer {key}")]
    project = json.loads(server.send(events.Request("GET", f"{P}/", [], bearer), "x")[2])

    def get(path, *query):
        return events.Request("GET", P + path, list(query), bearer)

    event = {"api_key": project["api_token"], "event": "started", "distinct_id": "ada", "timestamp": "2024-02-03T10:00:00Z"}
    return {
        "flags": get("/feature_flags/1/"), "role_access": get("/feature_flags/1/role_access/"),
        "insights": get("/insights/1/", ("refresh", "force_cache")), "calculation": get("/query/nothing/"), "projects": get("/"),
        "capture": events.Request("POST", "/capture/", [], [("Content-Type", "application/json")], json.dumps(event).encode()),
        "reference": events.Request("GET", "/api/schema/", [], []),
        "bare": events.Request("GET", f"/items/ORG%23{ORGANIZATION}/ORG"),
    }


def started(binary, name, environment, request):
    """Milliseconds: from exec to the first poll, CPU time until then, the first event, the second."""
    event = events.http_api(request)
    with Function(binary, name, environment, 1769) as function:
        outcomes = [function.invoke(event) for _ in range(2)]
    for outcome in outcomes:
        status = outcome.value()["statusCode"]
        assert status == (404 if name == "calculation" else 200), (name, status, outcome.payload)
    return [function.first_poll_seconds * 1000, function.first_poll_work * 1000, *(outcome.seconds * 1000 for outcome in outcomes)]


def start(directory, pennon, runs, names):
    found = sizes_of(directory)
    with tempfile.TemporaryDirectory() as work:
        server = Server(os.path.realpath(pennon), work)
        try:
            requests = first_requests(server, server.declare(["startup"])["startup"])
            environment = {"AWS_ENDPOINT_URL_DYNAMODB": server.dynamodb, "AWS_ACCESS_KEY_ID": server.access_key_id,
                           "PENNON_EVENTS_URL": f"file://{server.data}/events",
                           "PENNON_LOG": "warn", "MALLOC_ARENA_MAX": "2", "PENNON_PAYLOAD_KEY": (server.data / "payload.key").read_text().strip()}
            times = {}
            for name in (name for name in (*names, "bare") if name in found):
                with zipfile.ZipFile(Path(directory) / name / "bootstrap.zip") as archive:
                    archive.extract("bootstrap", Path(work) / name)
                binary = Path(work) / name / "bootstrap"
                binary.chmod(0o755)
                # The first run reads the file from disk and records the key's use; it is not counted.
                times[name] = [started(binary, name, environment, requests[name]) for _ in range(runs + 1)][1:]
        finally:
            server.stop()
    return found, times


def table(found, times):
    lines = ["| function | exec to first poll | CPU until then | first event | second event | binary | zip | binary to bare |",
             "|---|---|---|---|---|---|---|---|"]
    bare = found.get("bare", [None])[0]
    for name, runs in times.items():
        poll, work, first, second = (statistics.median(column) for column in zip(*runs))
        binary, package = found[name]
        ratio = f"{binary / bare:.2f}{over(binary / bare, RATIO_GOALS.get(name, RATIO_GOAL))}" if bare else ""
        lines.append(f"| {name} | {poll:.1f} ms{over(poll, FIRST_POLL_GOAL)} | {work:.1f} ms | {first:.1f} ms{over(first, FIRST_RESPONSE_GOAL)} "
                     f"| {second:.1f} ms | {binary / 1e6:.2f} MB | {package / 1e6:.2f} MB | {ratio} |")
    return "\n".join(lines)


def over(value, goal):
    return f" (goal {goal})" if round(value, 2) > goal else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("build", "sizes", "start"):
        command = commands.add_parser(name)
        command.add_argument("directory")
        if name == "sizes":
            command.add_argument("--write", action="store_true")
        if name == "start":
            command.add_argument("pennon")
            command.add_argument("--runs", type=int, default=15)
            command.add_argument("--only", default=",".join(FUNCTIONS))
            command.add_argument("--json")
    options = parser.parse_args()
    if options.command == "build":
        return build(options.directory)
    if options.command == "sizes":
        return sys.exit("\n".join(sizes(options.directory, options.write)) or 0)
    found, times = start(options.directory, options.pennon, options.runs, options.only.split(","))
    print(table(found, times))
    if options.json:
        Path(options.json).write_text(json.dumps(times, indent=1))


if __name__ == "__main__":
    main()
