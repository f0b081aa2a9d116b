"""What all campaigns share: arguments, findings, an installation with its commands, a server process, and a client.

A campaign is a script that damages an installation many times and compares what the product returns with what it acknowledged. It
draws everything from a seed; threads and kills also depend on the machine, so a seed repeats the plan and mostly the finding.
"""

import argparse
import ctypes
import http.client
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

ORGANIZATION = "01900000-0000-7000-8000-000000000001"
TOKEN, KEY = "phc_durability", "phx_durability_0123456789012345678901234567890123"
WORKSPACE = {
    "organizations": [{"id": ORGANIZATION, "name": "Durability"}],
    "users": [{"id": 1, "email": "ada@example.com", "memberships": [{"organization": ORGANIZATION, "level": "owner"}]}],
    "projects": [{"id": "1", "organization": ORGANIZATION, "token": TOKEN}],
    "keys": [{"label": "durability", "user": "ada@example.com", "scopes": ["*"], "value": KEY}],
}
PROJECT = "/api/projects/1"
DATABASE, LOG, MARK = "dynamodb.sqlite", "dynamodb.sqlite-wal", "dynamodb.mark"
# Longer than any start or response takes: what takes longer is a finding of its own.
PATIENCE_SECONDS = 60
PAUSE_SECONDS = 0.005


class Unacknowledged(Exception):
    """No response came: the write may have happened or not."""


class StartFailed(Exception):
    """The server ended before it was ready; its text is what it printed to standard error."""


class Campaign:
    """The arguments of a campaign, a directory for its files, and its findings."""

    def __init__(self, description, times, **options):
        parser = argparse.ArgumentParser(description=description.split("\n")[0])
        parser.add_argument("binary", type=Path, help="the program `pennon`")
        parser.add_argument("--times", type=int, default=times, help=f"repetitions, {times} by default")
        parser.add_argument("--seed", type=int, default=None, help="repeats a run; random by default")
        for name, (default, text) in options.items():
            parser.add_argument(f"--{name}", type=type(default), default=default, help=text)
        self.options = parser.parse_args()
        self.times, self.binary = self.options.times, self.options.binary.resolve()
        self.seed = secrets.randbelow(10**6) if self.options.seed is None else self.options.seed
        self.name = Path(sys.argv[0]).stem
        self.directory = Path(tempfile.mkdtemp(prefix=f"pennon-{self.name}-"))
        self.began, self.count, self.round = time.monotonic(), 0, 0

    def random(self, *names):
        return random.Random("/".join(map(str, (self.seed, *names))))

    def finding(self, text):
        self.count += 1
        print(f"FINDING, round {self.round} of --seed {self.seed}: {text}", flush=True)

    def expect(self, condition, text):
        if not condition:
            self.finding(text)
        return condition

    def finish(self, summary):
        """Prints the summary and exits; the files of a run with findings stay."""
        where = "" if not self.count else f"; the files are in {self.directory}"
        print(f"{self.name}: {summary}; {self.count} findings; {time.monotonic() - self.began:.0f} s; --seed {self.seed}{where}", flush=True)
        if not self.count:
            shutil.rmtree(self.directory, ignore_errors=True)
        sys.exit(1 if self.count else 0)


def die_with_parent():
    """A campaign that is killed leaves no server behind."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class Installation:
    """A data directory, with the commands of the program."""

    def __init__(self, binary, data):
        self.binary, self.data = binary, Path(data)

    def create(self):
        workspace = self.data.parent / f"{self.data.name}.workspace.json"
        workspace.write_text(json.dumps(WORKSPACE))
        self.succeed("apply", workspace)
        return self

    def begin(self, command, *arguments):
        """Starts a command, whose end the caller awaits or which it kills."""
        return subprocess.Popen([self.binary, command, *map(str, arguments), "--data", str(self.data)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", preexec_fn=die_with_parent)

    def run(self, command, *arguments):
        """(exit status, standard output, standard error) of a command."""
        process = self.begin(command, *arguments)
        try:
            output, errors = process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            errors += f"\nkilled after {PATIENCE_SECONDS} s"
        return process.returncode, output, errors

    def succeed(self, command, *arguments):
        status, output, errors = self.run(command, *arguments)
        if status:
            raise AssertionError(f"pennon {command}: status {status}: {output[-1500:]}{errors[-1500:]}")
        return output

    def files(self, below="."):
        """All files, as paths relative to the data directory."""
        root = self.data / below
        return sorted(str(path.relative_to(self.data)) for path in root.rglob("*") if path.is_file())

    def copy_to(self, data):
        """A copy of all files, as another installation."""
        shutil.copytree(self.data, data)
        return Installation(self.binary, data)

    def remove(self):
        shutil.rmtree(self.data, ignore_errors=True)


class Client:
    """Requests over one connection; for one thread."""

    def __init__(self, url):
        self.connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_SECONDS)

    def send(self, method, path, body=None, **headers):
        """(status, parsed body)."""
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json",
                   **{name.replace("_", "-"): value for name, value in headers.items()}}
        try:
            self.connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = self.connection.getresponse()
            status, text = response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            raise Unacknowledged(repr(error)) from error
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text.decode(errors="replace")

    def get(self, path):
        return self.send("GET", path)

    def post(self, path, body, **headers):
        return self.send("POST", path, body, **headers)

    def patch(self, path, body):
        return self.send("PATCH", path, body)


class Server:
    """`pennon serve` on a free port, from `start` until `kill` or `stop`."""

    def __init__(self, installation):
        self.installation = installation
        self.process = self.url = self.ready_seconds = None

    def start(self):
        """Starts and waits until `/_health` has responded; measures the seconds until then."""
        data = self.installation.data
        self.errors = data.parent / f"{data.name}.serve.log"
        began = time.monotonic()
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen([self.installation.binary, "serve", "--no-demo", "--port", "0", "--data", str(data)],
                                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, preexec_fn=die_with_parent)
        while True:
            try:
                info = json.loads((data / "server.json").read_text())
                # A killed server leaves its file.
                if info["pid"] == self.process.pid:
                    break
            except (OSError, ValueError):
                pass
            if self.process.poll() is not None:
                raise StartFailed(self.errors.read_text(errors="replace")[-2000:])
            if time.monotonic() - began > PATIENCE_SECONDS:
                self.kill()
                raise StartFailed(f"not ready after {PATIENCE_SECONDS} s")
            time.sleep(PAUSE_SECONDS)
        self.url = info["http"]
        self.health = self.client().get("/_health")
        self.ready_seconds = time.monotonic() - began
        return self

    def client(self):
        return Client(self.url)

    def log(self):
        return self.errors.read_text(errors="replace")

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
        if self.process:
            self.process.wait()

    def stop(self):
        """Ends as a service manager ends it; the exit status."""
        self.process.terminate()
        try:
            return self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return None


def exported_events(installation):
    """All stored events as lists of parsed lines by uuid, by `pennon export`, which reads every block and segment."""
    import gzip
    out = installation.data.parent / f"{installation.data.name}.export"
    for leftover in (out, out.with_name(f"{out.name}.unfinished")):
        shutil.rmtree(leftover, ignore_errors=True)
    installation.succeed("export", "--out", out)
    events = {}
    for file in sorted((out / "project-1").glob("events-*.jsonl.gz")):
        with gzip.open(file, "rt") as lines:
            for line in lines:
                event = json.loads(line)
                events.setdefault(event["uuid"], []).append(event)
    shutil.rmtree(out)
    return events


def require_root(what):
    """Ends a campaign with a message where it cannot run."""
    if os.geteuid() != 0:
        print(f"skipped: {what} needs root")
        sys.exit(0)
