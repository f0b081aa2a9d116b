#!/usr/bin/env python3
"""Runs published clients of PostHog and OpenFeature, with only a project token, against a `pennon serve` process.

    check_clients.py PENNON                  the newest version of each client
    check_clients.py PENNON --all            older versions too
    check_clients.py PENNON --only NAME,...  some of them
    check_clients.py PENNON --usage          only the check that calls of an SDK count as usage of a flag
    check_clients.py PENNON --gateway http   through an HTTP API alone: clients that compress lose events, as a control

Each client is a program with a time limit. It evaluates all flags of expected.py for each person there, most send 20
events, and every request passes a recording proxy, which hands bodies on as the deployment's gateways do. One line per client; exit status 1 if one fails. README.md has the rules.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import expected
import packages
import pages
import routes
import usage
from product import TOKEN, Product, wait_for
from recorder import GATEWAYS, Recorder

HERE = Path(__file__).resolve().parent
EVENTS = 20
PROGRAM_SECONDS = 90  # for one client program
CALL_SECONDS = 5  # for one call of a client, and for one request
COUNT_SECONDS = 15  # until a trend counts the sent events
RETRY_SECONDS = 10  # in which older versions of posthog-js have retried events that they consider lost


@dataclass(frozen=True)
class Client:
    name: str
    kind: str  # browser, node or python
    program: str
    packages: str  # folder of npm packages, or major version of posthog on PyPI
    module: str
    events: int = EVENTS
    absent: tuple | None = None  # its value of a server-only flag, if its requests are not detected as a server's
    credentials: bool = False  # whether the browser sends its cookies
    is_newest: bool = True


def old(name, kind, program, folder, module, **others):
    return Client(name, kind, program, folder, module, is_newest=False, **others)


def posthog_js(version):
    return old(f"posthog-js {version}", "browser", "posthog.js", "older", f"posthog-js-{version}", absent=(None,), credentials=True)


CLIENTS = [
    Client("posthog-js", "browser", "posthog.js", "newest", "posthog-js", absent=(None,)),
    Client("@posthog/openfeature-web-provider", "browser", "openfeature_posthog.js", "newest", "posthog-js", absent=(False,)),
    Client("@openfeature/ofrep-web-provider", "browser", "openfeature_ofrep.js", "newest", "", events=0, absent=(False,)),
    Client("posthog-node", "node", "posthog_node.js", "newest", "posthog-node"),
    Client("@flags-sdk/posthog", "node", "flags_sdk.js", "newest", "", events=0),
    Client("posthog (PyPI)", "python", "posthog_python.py", "7", ""),
    Client("openfeature-provider-posthog (PyPI)", "python", "openfeature_python.py", "7", "posthog", events=0),
    Client("openfeature-provider-ofrep (PyPI)", "python", "openfeature_python.py", "7", "ofrep", events=0),
    posthog_js("1.57"),
    posthog_js("1.96"),
    posthog_js("1.109"),
    old("posthog-node 3", "node", "posthog_node.js", "older", "posthog-node-3", absent=(False,)),
    old("posthog-node 4", "node", "posthog_node.js", "older", "posthog-node-4"),
    old("posthog 3 (PyPI)", "python", "posthog_python.py", "3", ""),
    old("posthog 4 (PyPI)", "python", "posthog_python.py", "4", ""),
    old("posthog 6 (PyPI)", "python", "posthog_python.py", "6", ""),
]


def client_environment():
    """Without proxies and credentials: clients connect only to 127.0.0.1."""
    left_out = ("proxy", "posthog", "aws_")
    return {name: value for name, value in os.environ.items() if not any(part in name.lower() for part in left_out)}


def start_program(client, task):
    """(result, messages, exit status) of a program that runs without a browser."""
    if client.kind == "node":
        command = ["node", HERE / "node" / client.program]
        task["packages"] = str(packages.install_npm(client.packages))
    else:
        command = [packages.install_python(client.packages), "-W", "ignore::DeprecationWarning", HERE / "python" / client.program]
    try:
        done = subprocess.run(command, input=json.dumps(task), capture_output=True, text=True, timeout=PROGRAM_SECONDS,
                              env=client_environment())
    except subprocess.TimeoutExpired as expired:
        return None, f"not done within {PROGRAM_SECONDS} s: {expired.stderr}", 1
    lines = done.stdout.splitlines()
    try:
        result = json.loads(lines.pop())
    except (IndexError, ValueError):
        return None, done.stdout[-1000:] + done.stderr[-2000:], done.returncode or 1
    messages = [line for line in lines + done.stderr.splitlines() if "is deprecated and will be removed" not in line]
    return result, "\n".join(messages), done.returncode


def open_page(client, task, recorder):
    packages.install_npm(client.packages)
    if client.packages != "newest":
        packages.install_npm("newest")  # the import map contains them

    def has_sent_all():
        seconds = 0 if client.is_newest else RETRY_SECONDS
        return len(recorder.count_sent(task["event"])) >= client.events and recorder.is_quiet(seconds)

    result, messages = pages.run_page(packages.INSTALLED, client.program, task, PROGRAM_SECONDS, has_sent_all, client_environment())
    return result, messages, 0 if result else 1


def check_requests(client, exchanges):
    """Findings about the requests and their responses."""
    if not exchanges:
        yield "no request arrived"
    for exchange in exchanges:
        if exchange.path.startswith("/static/"):
            continue  # scripts that the product does not have; the configuration disables their features
        if exchange.is_altered:
            yield f"the gateway altered the body: {exchange}"
        if exchange.status is None or not 200 <= exchange.status < 400:
            yield f"refused or without a response: {exchange}"
        if exchange.milliseconds > CALL_SECONDS * 1000:
            yield f"too slow: {exchange}"
    if client.kind == "browser":
        yield from check_cross_origin(client, exchanges)


def check_cross_origin(client, exchanges):
    for exchange in exchanges:
        origin = exchange.headers.get("Origin")
        headers = {name.lower(): value for name, value in exchange.response_headers.items()}
        if origin is None or exchange.path.startswith("/static/"):
            continue
        allowed = headers.get("access-control-allow-origin"), headers.get("access-control-allow-credentials"), headers.get("vary")
        if allowed[:2] != (origin, "true") or "origin" not in (allowed[2] or "").lower():
            yield f"not for this origin: {exchange} with {allowed}"
    if client.credentials and not any("Cookie" in exchange.headers for exchange in exchanges if exchange.method == "POST"):
        yield "this version sends credentials, but no request carried a cookie"


def check_events(client, task, product, recorder):
    if not client.events:
        return
    sent = recorder.count_sent(task["event"])
    repeated = sum(times - 1 for times in sent.values())
    if len(sent) != client.events or repeated:
        yield f"{len(sent)} events sent, {repeated} of them again; {client.events} expected"
    wait_for(lambda: product.count_events(task["event"]) >= client.events, COUNT_SECONDS, pause=0.5)
    counted = product.count_events(task["event"])
    if counted != client.events:
        yield f"{counted} events counted, {client.events} expected"


def check_client(client, product, gateway):
    """(findings, summary) of one client."""
    recorder = Recorder(product.url, GATEWAYS[gateway])
    task = {
        "host": recorder.url, "token": TOKEN, "module": client.module, "persons": expected.PERSONS, "events": client.events,
        "event": f"sent by {client.name}", "flags": [flag["key"] for flag in expected.FLAGS],
    }
    try:
        if client.kind == "browser":
            result, messages, status = open_page(client, task, recorder)
        else:
            result, messages, status = start_program(client, task)
        wait_for(recorder.is_quiet, CALL_SECONDS)
    finally:
        recorder.close()
    findings = [f"messages: {messages}"] if messages.strip() else []
    if status != 0:
        findings.append(f"exit status {status}, {'no result' if result is None else 'a result'}")
    if result is not None:
        findings += result["errors"]
        findings += [] if result["rounds"] else ["no results"]
        for results in result["rounds"]:
            findings += expected.compare_values(results, client.absent)
        if result["slowest_ms"] > CALL_SECONDS * 1000:
            findings.append(f"a call took {result['slowest_ms']} ms")
    exchanges = list(recorder.exchanges)
    findings += check_requests(client, exchanges)
    findings += check_events(client, task, product, recorder)
    return findings, summarize(client, result, exchanges)


def summarize(client, result, exchanges):
    rounds = len(result["rounds"]) if result else 0
    parts = [f"{rounds * len(expected.PERSONS) * (len(expected.FLAGS) + 1)} values", f"{len(exchanges)} requests"]
    if client.events:
        parts.append(f"{client.events} events")
    if any("Cookie" in exchange.headers for exchange in exchanges):
        parts.append("with credentials")
    if result:
        parts.append(f"slowest call {result['slowest_ms']} ms")
    return ", ".join(parts)


def report(name, findings, summary, seconds):
    print(f"{'FAILED' if findings else 'ok':6} {name:36} {seconds:5.1f} s  {summary}", flush=True)
    for finding in findings[:20]:
        print("       " + finding.strip().replace("\n", "\n       ")[:3000], flush=True)
    return not findings


def run_checks(options, product):
    """Whether all selected checks pass."""
    flags = product.seed()
    if options.usage:
        return usage.check_usage(product, flags["everybody"], "everybody", client_environment())
    passed = 0
    clients = [client for client in CLIENTS if options.all or client.is_newest]
    if options.only:
        clients = [client for client in CLIENTS if client.name in options.only]
    else:
        began = time.monotonic()
        findings = list(routes.check_routes(product, TOKEN))
        passed += report("plain requests", findings, routes.SUMMARY, time.monotonic() - began)
    for client in clients:
        began = time.monotonic()
        passed += report(client.name, *check_client(client, product, options.gateway), time.monotonic() - began)
    count = len(clients) + (not options.only)
    print(f"{passed} passed, {count - passed} failed")
    return passed == count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--all", action="store_true", help="older versions too")
    parser.add_argument("--only", type=lambda text: text.split(","), help="clients by their names, separated by commas")
    parser.add_argument("--usage", action="store_true", help="only whether calls of an SDK count as usage")
    parser.add_argument("--gateway", choices=GATEWAYS, default="deployed", help="what hands bodies on")
    options = parser.parse_args()
    unknown = set(options.only or []) - {client.name for client in CLIENTS}
    if unknown:
        parser.error(f"no client {', '.join(sorted(unknown))}; there are {', '.join(client.name for client in CLIENTS)}")
    with tempfile.TemporaryDirectory(prefix="clients-") as directory:
        product = Product(options.binary, directory)
        try:
            return 0 if run_checks(options, product) else 1
        finally:
            product.stop()


if __name__ == "__main__":
    sys.exit(main())
