"""Unleash Edge, and the requests to the three servers that evaluate all flags for one user."""

import json
import random
import time
from urllib.parse import urlencode

from load import Request
from processes import Process, send_request
from servers import Pennon, Server, Unleash

USERS = 4000  # prepared requests, each for a different user
FRONTEND = "*:development.frontend0123456789abcdef0123456789"


class Edge(Server):
    """A proxy that caches the flags of its Unleash in memory and evaluates them itself."""

    name = "Edge"

    def __init__(self, work, binary, unleash):
        super().__init__(work)
        self.binary, self.unleash = binary, unleash

    @property
    def pids(self):
        return [self.process.pid]

    def ready(self):
        return send_request(self.url + "/internal-backstage/ready", timeout=5)[0] == 200

    def start(self):
        self.process = Process(
            [self.binary, "--interface", "127.0.0.1", "--port", self.url.rpartition(":")[2], "edge", "--strict",
             "--upstream-url", self.unleash.url, "--tokens", Unleash.client], self.work / "edge.log")
        return self.process.wait_until(self.ready)

    def stop(self):
        if self.process:
            self.process.stop()


def evaluation(server, user, encoding="identity", domain="example.com"):
    """A request for the values of all flags for one user, whose address meets the condition of each flag, or of none."""
    email = f"user-{user}@{domain}"
    headers = {"Accept-Encoding": encoding}
    if isinstance(server, Pennon):
        body = {"token": "phc_benchmark", "distinct_id": f"user-{user}", "person_properties": {"email": email}}
        return Request("POST", "/flags/?v=2", headers, json.dumps(body))
    query = urlencode({"userId": f"user-{user}", "properties[email]": email})
    return Request("GET", f"/api/frontend?{query}", {**headers, "Authorization": FRONTEND})


def count_enabled(server, user, domain="example.com"):
    """How many flags are on for a user; None if the server is not ready."""
    request = evaluation(server, user, domain=domain)
    headers = request.headers | ({"Content-Type": "application/json"} if request.body else {})
    status, _, body = send_request(server.url + request.path, request.method, headers, request.body)
    if status != 200:
        return None
    response = json.loads(body)
    if "flags" in response:
        return sum(flag["enabled"] for flag in response["flags"].values())
    return sum(toggle["enabled"] for toggle in response["toggles"])


def wait_for_evaluation(server, flags, patience=60):
    """Waits until about half of the flags are on for users who meet the condition, and none for others."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        users = random.sample(range(USERS), 5)
        counts = [count_enabled(server, user) for user in users]
        others = [count_enabled(server, user, "elsewhere.org") for user in users]
        if set(others) == {0} and None not in counts and abs(sum(counts) / 5 - flags / 2) < flags / 8:
            return
        time.sleep(0.5)
    raise SystemExit(f"{server.name} has {counts} of {flags} flags on for users who meet the condition, {others} for others")
