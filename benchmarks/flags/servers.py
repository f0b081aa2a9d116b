"""The two servers: start, setup with flags, and the same requests for each."""

import json
import os
import random
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

from load import Request
from processes import Process, send_request, free_port

# The operations: reads first, because writes change the performance of the database.
READS = ["list", "get", "feed gzip", "feed 304"]
WRITES = ["update", "create"]
PICKED = 4000  # prepared requests if each is for a random flag


class Server:
    """A server under test. `requests(operation)` prepares the requests, `created` names flags that `remove` deletes."""

    headers: dict
    expected = {"feed 304": 304}

    def __init__(self, work):
        self.work = work
        self.url = f"http://127.0.0.1:{free_port()}"
        self.process = None
        self.flags = []

    def call(self, request, expected=(200,)):
        headers = request.headers | ({"Content-Type": "application/json"} if request.body is not None else {})
        status, headers, body = send_request(self.url + request.path, request.method, headers, request.body)
        if status not in expected:
            raise SystemExit(f"{self.name}: {request.method} {request.path} returned {status}: {body[:300]}")
        return headers, body

    def json(self, path):
        return json.loads(self.call(Request("GET", path, self.headers))[1])

    def all(self, requests, expected, at_once=8):
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda request: self.call(request, expected), requests))

    def ready(self):
        return send_request(self.url + self.first, headers=self.headers, timeout=5)[0] == 200

    def feed(self, operation):
        request = Request("GET", self.feed_path, dict(self.feed_headers))
        if operation == "feed gzip":
            request.headers["Accept-Encoding"] = "gzip"
        else:
            request.headers["If-None-Match"] = self.call(request)[0]["ETag"]
        return [request]

    def picked(self, make):
        return [make(random.choice(self.flags), number) for number in range(PICKED)]

    def requests(self, operation, run, count):
        if operation.startswith("feed"):
            return self.feed(operation)
        if operation == "create":
            return [self.creation(f"new-{run}-{number}") for number in range(count)]
        if operation == "list":
            return [Request("GET", self.list_path, self.headers)]
        return self.picked(self.retrieval if operation == "get" else self.change)


class Pennon(Server):
    name = "Pennon"
    key = "phx_" + "benchmark" * 4
    flags_path = "/api/projects/1/feature_flags/"
    first = flags_path + "?limit=1"
    list_path = flags_path + "?limit=100"
    feed_path = flags_path + "local_evaluation/"
    headers = feed_headers = {"Authorization": f"Bearer {key}"}

    def __init__(self, work, binary):
        super().__init__(work)
        self.binary = binary
        self.data = work / "pennon"
        organization = "01900000-0000-7000-8000-000000000001"
        self.workspace = work / "workspace.json"
        self.workspace.write_text(json.dumps({
            "organizations": [{"id": organization, "name": "Benchmark"}],
            "users": [{"id": 1, "email": "benchmark@example.com", "memberships": [{"organization": organization, "level": "owner"}]}],
            "projects": [{"id": 1, "organization": organization, "token": "phc_benchmark"}],
            "keys": [{"label": "benchmark", "user": "benchmark@example.com", "scopes": ["*"], "value": self.key}],
        }))

    @property
    def pids(self):
        return [self.process.pid]

    def start(self):
        """Seconds until the first response; the first start creates the tables and the workspace."""
        command = [self.binary, "serve", "--data", self.data, "--port", self.url.rpartition(":")[2]]
        if not self.data.exists():
            command += ["--workspace", self.workspace]
        self.process = Process(command, self.work / "pennon.log")
        return self.process.wait_until(self.ready)

    def stop(self):
        if self.process:
            self.process.stop()

    def seed(self, count):
        filters = {"groups": [{"rollout_percentage": 50, "properties": [
            {"key": "email", "type": "person", "operator": "icontains", "value": "@example.com"}]}]}
        self.all([Request("POST", self.flags_path, self.headers, json.dumps(
            {"key": f"flag-{number:05}", "name": f"Flag {number} of the benchmark", "filters": filters})) for number in range(count)], [201])
        self.flags = [flag["id"] for flag in self.json(self.flags_path + f"?limit={count}")["results"]]

    def retrieval(self, flag, _):
        return Request("GET", f"{self.flags_path}{flag}/", self.headers)

    def change(self, flag, number):
        return Request("PATCH", f"{self.flags_path}{flag}/", self.headers, json.dumps({"name": f"Changed {number}"}))

    def creation(self, key):
        return Request("POST", self.flags_path, self.headers, json.dumps(
            {"key": key, "name": "Made by the benchmark", "filters": {"groups": [{"properties": [], "rollout_percentage": 50}]}}))

    def remove(self, prefix):
        # One at a time: every deletion must see the result of the previous one.
        while found := self.json(f"{self.flags_path}?limit=1000&search={prefix}")["results"]:
            self.all([Request("PATCH", f"{self.flags_path}{flag['id']}/", self.headers, '{"deleted": true}') for flag in found], [200], at_once=1)


class Unleash(Server):
    name = "Unleash"
    admin = "*:*.admin0123456789abcdef0123456789abcd"
    client = "*:development.client0123456789abcdef0123456789ab"
    flags_path = "/api/admin/projects/default/features"
    first = flags_path
    list_path = "/api/admin/search/features?project=IS:default&limit=100&offset=0"
    feed_path = "/api/client/features"
    headers = {"Authorization": admin}
    feed_headers = {"Authorization": client}

    def __init__(self, work, peers, postgres):
        super().__init__(work)
        self.peers, self.programs = peers, postgres
        self.database_port = free_port()
        self.database = None

    @property
    def pids(self):
        return [self.process.pid, self.database.pid]

    def start_database(self):
        """PostgreSQL with its defaults; it does not run as root."""
        home = self.work / "postgres"
        home.mkdir()
        as_user = []
        if os.getuid() == 0:
            shutil.chown(home, "postgres")
            as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
        data = home / "data"
        subprocess.run([*as_user, f"{self.programs}/initdb", "-D", data, "-A", "trust", "-U", "unleash", "-E", "UTF8", "--locale", "C.UTF-8"],
                       check=True, stdout=subprocess.DEVNULL, cwd=home)
        here = ["-h", "127.0.0.1", "-p", str(self.database_port)]
        self.database = Process([*as_user, f"{self.programs}/postgres", "-D", data, "-p", str(self.database_port),
                                 "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="], self.work / "postgres.log", directory=home)
        self.database.wait_until(lambda: subprocess.run([f"{self.programs}/pg_isready", "-q", *here]).returncode == 0)
        subprocess.run([f"{self.programs}/createdb", *here, "-U", "unleash", "unleash"], check=True)

    def start(self, environment=None):
        """Seconds until the first response, with PostgreSQL running; the first start runs the migrations."""
        if not self.database:
            self.start_database()
        no_limit = str(10**9)
        self.process = Process(
            [self.peers / "node_modules/node/bin/node", "node_modules/unleash-server/dist/server.js"], self.work / "unleash.log",
            directory=self.peers, environment={
                "NODE_ENV": "production", "TZ": "UTC", "HTTP_HOST": "127.0.0.1", "HTTP_PORT": self.url.rpartition(":")[2],
                "DATABASE_URL": f"postgres://unleash@127.0.0.1:{self.database_port}/unleash", "DATABASE_SSL": "false",
                "SEND_TELEMETRY": "false", "CHECK_VERSION": "false", "INIT_ADMIN_API_TOKENS": self.admin, "INIT_BACKEND_API_TOKENS": self.client,
                "UNLEASH_FEATURE_FLAGS_LIMIT": no_limit, "SEARCH_FEATURES_RATE_LIMIT_PER_MINUTE": no_limit,
                "SDK_API_RATE_LIMIT_PER_MINUTE": no_limit, "TOKEN_AUTHENTICATION_RATE_LIMIT_PER_MINUTE": no_limit,
                **(environment or {})})
        return self.process.wait_until(self.ready)

    def stop(self, with_database=True):
        if self.process:
            self.process.stop()
        if self.database and with_database:
            self.database.stop(signal.SIGINT)

    def seed(self, count):
        keys = [f"flag-{number:05}" for number in range(count)]
        post = lambda path, body=None: Request("POST", path, self.headers, body and json.dumps(body))  # noqa: E731
        for_one = lambda key: f"{self.flags_path}/{key}/environments/development"  # noqa: E731
        self.all([post(self.flags_path, {"name": key, "type": "release", "description": f"{key} of the benchmark", "impressionData": False})
                  for key in keys], [201])
        self.all([post(f"{for_one(key)}/strategies", {
            "name": "flexibleRollout", "parameters": {"rollout": "50", "stickiness": "default", "groupId": key},
            "constraints": [{"contextName": "email", "operator": "STR_CONTAINS", "values": ["@example.com"], "caseInsensitive": True}]})
            for key in keys], [200])
        self.all([post(f"{for_one(key)}/on") for key in keys], [200])
        self.flags = keys
        subprocess.run([f"{self.programs}/vacuumdb", "--analyze", "--quiet", "-h", "127.0.0.1", "-p", str(self.database_port),
                        "-U", "unleash", "unleash"], check=True)

    def retrieval(self, flag, _):
        return Request("GET", f"{self.flags_path}/{flag}", self.headers)

    def change(self, flag, number):
        patch = [{"op": "replace", "path": "/description", "value": f"Changed {number}"}]
        return Request("PATCH", f"{self.flags_path}/{flag}", self.headers, json.dumps(patch))

    def creation(self, key):
        return Request("POST", self.flags_path, self.headers, json.dumps(
            {"name": key, "type": "release", "description": "Made by the benchmark", "impressionData": False}))

    def remove(self, prefix):
        found = [flag["name"] for flag in self.json(self.flags_path)["features"] if flag["name"].startswith(prefix)]
        for some in (found[at:at + 500] for at in range(0, len(found), 500)):
            self.call(Request("POST", "/api/admin/projects/default/archive", self.headers, json.dumps({"features": some})), [202])
