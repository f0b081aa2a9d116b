"""The product under test: `pennon serve` on a free port with one project, its flags and one stored person."""

import json
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import expected

ORGANIZATION = "01900000-0000-7000-8000-000000000001"
TOKEN, KEY = "phc_clients", "phx_clients_0123456789012345678901234567890123"
WORKSPACE = {
    "organizations": [{"id": ORGANIZATION, "name": "Clients"}],
    "users": [{"id": 1, "email": "ada@example.com", "memberships": [{"organization": ORGANIZATION, "level": "owner"}]}],
    "projects": [{"id": "1", "organization": ORGANIZATION, "token": TOKEN, "timezone": "UTC",
                  "group_types": [expected.GROUP_TYPE]}],
    "keys": [{"label": "clients", "user": "ada@example.com", "scopes": ["*"], "projects": [], "value": KEY}],
}
PATIENCE = 60  # seconds


def wait_for(condition, seconds=PATIENCE, pause=0.05):
    """Whether `condition()` became true within so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


class Product:
    def __init__(self, binary, directory):
        workspace = Path(directory) / "workspace.json"
        workspace.write_text(json.dumps(WORKSPACE))
        data, self.log = Path(directory) / "data", Path(directory) / "pennon.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [binary, "serve", "--data", data, "--port", "0", "--dynamodb-port", "0", "--workspace", workspace],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        address = data / "server.json"
        if not wait_for(lambda: address.exists() or self.process.poll() is not None) or self.process.poll() is not None:
            self.stop()
            raise SystemExit(f"pennon serve does not start:\n{self.log.read_text()[-2000:]}")
        self.url = json.loads(address.read_text())["http"]

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def call(self, method, path, body=None):
        """The JSON of a response to a request with the personal API key."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{method} {path}: {error.code} {error.read().decode()[:500]}") from None

    def seed(self):
        """Creates the flags, and returns when the stored person's property is visible to evaluation."""
        flags = {flag["key"]: self.call("POST", "/api/projects/1/feature_flags/", flag)["id"] for flag in expected.FLAGS}
        person = {"event": "$set", "distinct_id": expected.STORED_PERSON, "properties": {"$set": expected.STORED_PROPERTIES}}
        self.call("POST", "/batch/", {"api_key": TOKEN, "batch": [person]})
        body = {"token": TOKEN, "distinct_id": expected.STORED_PERSON}
        if not wait_for(lambda: self.call("POST", "/flags/?v=2", body)["flags"]["stored-tier"]["enabled"], 10):
            raise SystemExit("a stored property is not visible to /flags/ within 10 seconds")
        return flags

    def count_events(self, name):
        """How many events of this name a trend counts: today and the day before, in case midnight has passed."""
        query = {"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": name, "math": "total"}],
                 "dateRange": {"date_from": "-1d"}, "interval": "day"}
        body = {"query": query, "refresh": "force_blocking"}
        return sum(sum(series["data"]) for series in self.call("POST", "/api/projects/1/query/", body)["results"])
