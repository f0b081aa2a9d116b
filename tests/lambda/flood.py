"""A flood of captured events leaves flags and the documented routes available: the limits of the template's gateways.

API Gateway gives each route a token bucket, and all APIs of an account and region one in common; a request needs a token of both, the
route's first. Rates are divided by SCALE, because the emulated functions cannot handle an account's 10,000 requests a second.
"""

import http.client
import json
import threading
import time
from collections import Counter
from urllib.parse import urlsplit

ACCOUNT = (10_000, 5_000)  # requests a second and at one moment: the default quotas
SCALE = 200
SECONDS = 6
SENDERS = 12


class Bucket:
    """Refilled with `rate` tokens a second, up to `burst`."""

    def __init__(self, rate, burst, clock=time.monotonic):
        self.rate, self.burst, self.tokens, self.clock = rate, burst, burst, clock
        self.at = clock()

    def take(self):
        now = self.clock()
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class Limits:
    """The buckets of one account. `of_gateway` is (rate, burst) of each route, by gateway; none: as many as the account has."""

    def __init__(self, of_gateway=None, clock=time.monotonic):
        self.of_gateway, self.clock, self.lock = of_gateway, clock, threading.Lock()
        self.routes, self.account = {}, Bucket(ACCOUNT[0] / SCALE, ACCOUNT[1] / SCALE, clock)

    def admits(self, gateway, route):
        with self.lock:
            if self.of_gateway:
                rate, burst = self.of_gateway[gateway]
                bucket = self.routes.setdefault((gateway, route), Bucket(rate / SCALE, burst / SCALE, self.clock))
                if not bucket.take():
                    return False
            return self.account.take()


def of_template(template):
    """(rate, burst) of each route, by gateway: the defaults of the template's parameters."""
    def default(name):
        return template["Parameters"][name]["Default"]

    return {"rest": (default("PublicRequestsPerSecond"), default("PublicRequestsBurst")), "http": (default("RequestsPerSecond"), default("RequestsBurst"))}


def send(url, method, path, body=None, headers=()):
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json", **dict(headers)})
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def run(url, key, token):
    """Statuses of the flood's requests, and of those that others send meanwhile, with the slowest of these in seconds."""
    end, flooded, others, slowest = time.monotonic() + SECONDS, Counter(), Counter(), 0.0
    event = {"api_key": token, "event": "flood", "distinct_id": "flood"}

    def flood():
        while time.monotonic() < end:
            flooded[send(url, "POST", "/e/", event)] += 1

    threads = [threading.Thread(target=flood) for _ in range(SENDERS)]
    for thread in threads:
        thread.start()
    bearer = {"Authorization": f"Bearer {key}"}
    while time.monotonic() < end:
        for request in (("POST", "/flags/?v=2", {"token": token, "distinct_id": "ada"}), ("GET", f"/flags/definitions?token={token}", None, bearer),
                        ("GET", "/api/projects/1/feature_flags/", None, bearer)):
            began = time.monotonic()
            others[send(url, *request)] += 1
            slowest = max(slowest, time.monotonic() - began)
        time.sleep(0.5)
    for thread in threads:
        thread.join()
    return flooded, others, slowest


def check(deployment, template, key, token):
    """Findings. Without limits of routes the flood must be noticed, or this would prove nothing."""
    deployment.limits = Limits()
    _, others, _ = run(deployment.url, key, token)
    failures = [] if others[429] + others[503] else ["without limits of routes, a flood is not noticed"]
    print(f"flood without limits of routes: others got {dict(others)}", flush=True)
    deployment.limits = Limits(of_template(template))
    flooded, others, slowest = run(deployment.url, key, token)
    deployment.limits = None
    print(f"flood: got {dict(flooded)}, others {dict(others)}, the slowest in {slowest * 1000:.0f} ms", flush=True)
    if set(others) != {200}:
        failures.append(f"others got {dict(others)} during a flood")
    if not set(flooded) <= {200, 503} or not flooded[503]:
        failures.append(f"the flood got {dict(flooded)}: 200, and 503 above its limit, expected")
    if slowest > 5:
        failures.append(f"a response during the flood took {slowest:.1f} s")
    return failures
