#!/usr/bin/env python3
"""Every function, run as in Lambda, returns the responses of the local server; and no work continues after a response.

    check_loop.py PENNON DIRECTORY      the command line, and the folder of the functions' binaries

Starts `pennon serve` on an empty directory (it loads the demo) and gives the functions a copy of its tables and event files.
Sends both the same requests, as the deployment's gateways and as each kind of gateway alone, and compares the responses. Then runs
the worker. Through the deployment's gateways no body may be altered. Where another gateway alters one, the local server is
sent the altered body too, and both have to refuse it.
"""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import urlsplit

import events
import gateways
import largest
import quiet
import thaw
import worker
from compare import Ids, differences
from runtime import Function
from scenario import sdk_steps, steps
from store import Database, prepare

ORGANIZATION = "01900000-0000-7000-8000-0000000d3e0a"  # the demo's
ROLE = "01900000-0000-7000-8000-00000000001a"
ALTERED_GZIP = b"\x1f\xef\xbf\xbd"  # gzip whose second byte was replaced, because something read it as UTF-8
API_FUNCTIONS = ("flags", "role_access", "insights", "calculation", "projects", "capture", "reference")
# Those that read their table in a request that needs nothing of an earlier one.
FROZEN_FUNCTIONS = ("flags", "role_access", "insights", "calculation", "projects", "capture")
MEMORY = {"flags": 1024, "insights": 1769, "calculation": 1769, "worker": 1769}
VIEWER_HOST = "d111111abcdef8.cloudfront.net"
BINARY = events.Reading.BINARY


@dataclass(frozen=True)
class Form:
    name: str
    make: callable  # an event of a request
    host: str = events.HTTP_HOST  # of links
    stage: str = ""  # prefix that a stage adds to paths of links
    steps: callable = steps
    may_alter: bool = True


FORMS = (
    Form("aws", lambda it: gateways.deployed(it, VIEWER_HOST), VIEWER_HOST, may_alter=False),
    Form("inflated", lambda it: gateways.deployed(it, VIEWER_HOST, inflates=True), VIEWER_HOST, steps=sdk_steps, may_alter=False),
    Form("http", events.http_api),
    Form("mild", lambda it: events.http_api(it, reading=BINARY), steps=sdk_steps),
    Form("rest", events.rest_api, stage="/prod", may_alter=False),
    Form("url", events.function_url, events.URL_HOST),
    Form("stage", lambda it: events.http_api(it, "prod"), stage="/prod"),
)


class Server:
    """`pennon serve` on free ports, until `stop`."""

    def __init__(self, pennon, directory):
        self.pennon, self.data = pennon, Path(directory) / "data"
        self.log = open(Path(directory) / "serve.log", "wb")
        # The demo is loaded on the day on which its events keep their published dates, which the queries use.
        self._start("--now", "2024-06-30T12:00:00Z")
        self._end()
        info = self._start()
        self.http, self.dynamodb, self.access_key_id = info["http"], info["dynamodb"], info["access_key_id"]
        self.database = Database(self.dynamodb, self.access_key_id)

    def _start(self, *options):
        command = [self.pennon, "serve", "--data", str(self.data), "--port", "0", *options]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, start_new_session=True)
        return self._announced()

    def _end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)

    def _announced(self):
        end = time.monotonic() + 120
        while time.monotonic() < end and self.process.poll() is None:
            try:
                return json.loads((self.data / "server.json").read_text())
            except (OSError, ValueError):
                time.sleep(0.05)
        raise RuntimeError("pennon serve did not start")

    def declare(self, names):
        """A key with all scopes for each name, and a role."""
        keys = {name: f"phx_loop_{name}_0123456789" for name in names}
        file = self.data.parent / "workspace.json"
        file.write_text(json.dumps({
            "roles": [{"id": ROLE, "organization": ORGANIZATION, "name": "Loop"}],
            "keys": [{"label": name, "user": "demo@example.com", "scopes": ["*"], "value": key} for name, key in keys.items()]}))
        subprocess.run([self.pennon, "apply", str(file), "--data", str(self.data)], check=True, capture_output=True)
        return keys

    def send(self, request, host):
        connection = http.client.HTTPConnection(urlsplit(self.http).netloc, timeout=60)
        path = request.path + (f"?{request.raw_query()}" if request.query else "")
        connection.putrequest(request.method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in events.forwarded(request, host):
            connection.putheader(name, value)
        if request.body is not None:
            connection.putheader("Content-Length", str(len(request.body)))
        connection.endheaders(request.body)
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        given = response.status, headers, response.read()
        connection.close()
        return given

    def stop(self):
        self._end()
        self.log.close()


def today():
    """The days around now, including those on which cached results expire."""
    now = datetime.now(timezone.utc)
    return {(now + timedelta(days=by)).strftime("%Y-%m-%d") for by in range(-1, 8)}


def value_at(body, path):
    for part in path.split("."):
        body = body[int(part)] if isinstance(body, list) else body[part]
    return body


def saved(step, body, values):
    for name, path in step.save.items():
        values[name] = value_at(json.loads(body), path)


def without(text, values, stage):
    """The text without a stage in links, and without random names."""
    if stage:
        text = text.replace(f"https://{events.HTTP_HOST}{stage}/", f"https://{events.HTTP_HOST}/")
    for name in values:
        if name.startswith("short_"):
            text = text.replace(str(values[name]), f"({name})")
    return text


def plain(response, values, stage):
    status, headers, body = response
    if headers.get("content-encoding"):
        return response
    headers = {name: without(text, values, stage) for name, text in headers.items()}
    return status, headers, without(body.decode("latin-1"), values, stage).encode("latin-1")


class Loop:
    """Both sides, and the saved values of each."""

    def __init__(self, server, functions, known):
        self.server, self.functions, self.ids, self.failures, self.count, self.altered = server, functions, Ids(), [], 0, 0
        self.known = known

    def compare(self, form, chosen=None):
        local, function = dict(self.known), dict(self.known)
        for step in chosen or form.steps(form.name):
            request, event = step.request(local, events.Request), form.make(step.request(function, events.Request))
            found, status, arrived = [], step.status, events.received(event)
            if arrived is not None and arrived.startswith(ALTERED_GZIP):
                found += [] if form.may_alter else ["a body was altered"]
                request, status = replace(request, body=arrived), 400
                self.altered += 1
            wanted = self.server.send(request, form.host)
            given = events.response_of(self.functions[step.function].invoke(event).value())
            self.count += 1
            if wanted[0] < 300 and given[0] == wanted[0]:
                saved(step, wanted[2], local)
                saved(step, given[2], function)
            found += differences(plain(wanted, local, ""), plain(given, function, form.stage), self.ids, today())
            if wanted[0] != status:
                found.append(f"status {wanted[0]} of the local server, expected {status}: {wanted[2][:300]!r}")
            if status != step.status and b"disable_compression" not in wanted[2]:
                found.append(f"an altered body is refused without the name of the setting: {wanted[2][:300]!r}")
            self.failures += [f"{form.name} {step.function} {step.method} {step.path} {dict(step.query)}: {line}" for line in found]


def start_functions(binaries, environment, directory, names):
    functions = {}
    for name in names:
        log = Path(directory) / f"{name}.log"
        functions[name] = Function(Path(binaries) / name, name, environment, MEMORY.get(name, 512), log=log, directory=directory)
        functions[name].start()
    return functions


def foreign_event(function):
    """An event of an unknown kind is an error that the function reports; it handles the next one."""
    outcome = function.invoke({"hello": "world"})
    assert outcome.kind == "error" and b"doesn't match" in outcome.payload, (outcome.kind, outcome.payload)
    request = events.Request("GET", "/api/projects/")
    assert events.response_of(function.invoke(events.http_api(request)).value())[0] == 401


def without_its_table(binaries, environment, directory):
    """A function whose table is unreachable starts, and reports it in its responses."""
    closed = {**environment, "AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:9"}
    function = Function(Path(binaries) / "projects", "projects", closed, 512, log=Path(directory) / "closed.log", directory=directory)
    with function:
        status, headers, _ = events.response_of(function.invoke(events.http_api(events.Request(
            "GET", "/api/projects/", [], [("Authorization", "Bearer phx_unknown_0123456789")]))).value())
    return [] if (status, headers.get("retry-after")) == (503, "1") else [f"without a table: {status} {headers}"]


def check(pennon, binaries, directory):
    server = Server(pennon, directory)
    try:
        keys = server.declare(["main", *(f"{test}_{name}" for test in ("quiet", "thaw") for name in API_FUNCTIONS)])
        environment = prepare(server, directory)
        token = json.loads(server.send(events.Request("GET", "/api/projects/1/", [], [("Authorization", f"Bearer {keys['main']}")]), "x")[2])["api_token"]
        known = {"key": keys["main"], "token": token, "role": ROLE, "organization": ORGANIZATION}
        functions = start_functions(binaries, environment, directory, API_FUNCTIONS)
        try:
            loop = Loop(server, functions, known)
            for form in FORMS:
                loop.compare(form)
            loop.compare(FORMS[0], largest.steps())
            foreign_event(functions["projects"])
            loop.failures += without_its_table(binaries, environment, directory)
            if not loop.altered:
                loop.failures.append("no gateway altered a body")
            print(f"{loop.count} requests in {len(FORMS)} forms, {loop.altered} bodies altered by gateways that are not deployed", flush=True)
            loop.failures += worker.check(server, functions["calculation"], binaries, environment, directory, known)
            print("the worker has worked", flush=True)
            loop.failures += quiet.check(binaries, environment, directory, known, keys)
            loop.failures += thaw.check(binaries, environment, directory, known, keys, FROZEN_FUNCTIONS)
            print("frozen functions were resumed", flush=True)
        finally:
            for function in functions.values():
                function.stop()
        return loop.failures
    finally:
        server.stop()


def main():
    pennon, binaries = (os.path.realpath(path) for path in sys.argv[1:3])
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        failures = check(pennon, binaries, directory)
        if failures:
            print("\n".join(failures))
            print(panics(directory))
            sys.exit(f"{len(failures)} differences")
    print(f"the functions respond as the local server does, and rest between events ({time.monotonic() - began:.0f} s)")


def panics(directory):
    """Errors and warnings that the functions logged."""
    logs = (line for log in sorted(Path(directory).glob("*.log")) for line in log.read_text(errors="replace").splitlines())
    return "\n".join([line for line in logs if re.search(r'panicked|"ERROR"', line)][:20])


if __name__ == "__main__":
    main()
