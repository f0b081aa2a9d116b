"""A function that Lambda resumes after ten minutes: its connections are dead without a packet that reached it, the wall clock has
gone on, and the monotonic clock stood still.

Each function handles some events, is frozen, and loses its connections: the proxy before its store keeps them open and responds
to nothing that is sent on them. Its wall clock is set ten minutes later. The first request afterwards must get its response within five seconds,
none may be sent on a dead connection, and a key that was revoked meanwhile must be refused, although the cache of keys
is five seconds old by the monotonic clock at most.
"""

import hashlib
import struct
import subprocess
import time
from pathlib import Path

import events
import gateways
from runtime import Function
from scenario import steps
from store import RECORDS, Database, Proxy

FROZEN_SECONDS = 600
# Of the first response, connections included.
RESPONSE_SECONDS_MAX = 5.0
# Requests before the function is frozen: they fill its connection pool.
WARM_REQUESTS = 4
# A flag of the demo: the paths of role_access name a flag, which the scenario creates.
DEMO_FLAG = 1


class WallClock:
    """The wall clock of functions that have `environment`, by a library that is compiled into `directory`."""

    def __init__(self, directory):
        self.file, library = Path(directory) / "wall_clock", Path(directory) / "wall_clock.so"
        source = Path(__file__).with_name("wall_clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        self.offset = 0
        self.forward(0)
        self.environment = {"LD_PRELOAD": str(library), "WALL_CLOCK_FILE": str(self.file)}

    def now(self):
        return time.time() + self.offset

    def forward(self, seconds):
        self.offset += seconds
        # Written in place: the functions have the file mapped.
        with open(self.file, "r+b" if self.file.exists() else "wb") as file:
            file.write(struct.pack("=q", self.offset))


def requests_of(function):
    """Successful requests of one function that need nothing of an earlier one: with a key those that only read, with a token any."""
    found = [step for step in steps("thaw") if step.function == function and step.status == 200]
    keyed = [step for step in found if step.key == "{key}" and step.method == "GET"]
    known = ["{organization}", "{secret_thaw}"] if function == "role_access" else ["{organization}"]

    def stands_alone(path):
        for name in known:
            path = path.replace(name, "")
        return "{" not in path

    return [step for step in keyed or found if stands_alone(step.path)]


def key_row(key):
    return {"pk": {"S": f"KEY#sha256${hashlib.sha256(key.encode()).hexdigest()}"}, "sk": {"S": "KEY"}}


def check(binaries, environment, directory, known, keys, names):
    """Findings: slow or wrong responses after a freeze."""
    clock, failures = WallClock(directory), []
    database = Database(environment["AWS_ENDPOINT_URL_DYNAMODB"], environment["AWS_ACCESS_KEY_ID"])
    for name in names:
        proxy = Proxy(environment["AWS_ENDPOINT_URL_DYNAMODB"])
        own = {**environment, **clock.environment, "AWS_ENDPOINT_URL_DYNAMODB": proxy.url}
        try:
            log = Path(directory) / f"thaw_{name}.log"
            with Function(Path(binaries) / name, name, own, 1769, log=log, directory=directory, clock=clock) as function:
                failures += check_function(function, proxy, clock, database, known, keys[f"thaw_{name}"], keys["main"])
        finally:
            proxy.close()
    return failures


def check_function(function, proxy, clock, database, known, revoked, valid):
    requests, failures, severed = requests_of(function.name), [], 0
    assert requests, f"no request of {function.name} stands alone"

    def send(step, key):
        event = gateways.deployed(step.request({**known, "secret_thaw": DEMO_FLAG, "key": key}, events.Request))
        outcome = function.invoke(event)
        return events.response_of(outcome.value())[0], outcome.seconds

    def freeze():
        """The process has been stopped since its response."""
        nonlocal severed
        clock.forward(FROZEN_SECONDS)
        severed += proxy.sever()
        assert severed > 0, f"{function.name} has no connection to lose"

    def expect(when, status, key):
        found, seconds = send(requests[0], key)
        where = f"thaw {function.name} {requests[0].path}, {when}"
        if found != status:
            failures.append(f"{where}: {found} instead of {status}")
        if seconds >= RESPONSE_SECONDS_MAX:
            failures.append(f"{where}: responded after {seconds:.1f} s")
        if proxy.lost:
            failures.append(f"{where}: {proxy.lost} requests were sent on dead connections")

    for number in range(WARM_REQUESTS):
        for key in (revoked, valid):
            status, _ = send(requests[number % len(requests)], key)
            assert status == 200, f"{function.name} {requests[number % len(requests)].path}: {status}"
    if requests[0].key:
        database.call("DeleteItem", TableName=RECORDS, Key=key_row(revoked))
        freeze()
        expect("revoked key", 401, revoked)
    freeze()
    expect("valid credentials", 200, valid)
    return failures
