#!/usr/bin/env python3
"""Clients that mean harm: each attack goes on for some seconds beside evaluations of flags and reads of an honest client, who still gets
responses within a stated factor, from a server whose memory stays below a stated bound.

    hostile_clients.py PENNON [--seconds N] [--only ATTACK] [--seed S]

Statuses of an attack are counted; only those of clients' errors, and 503, are no finding. Attacks and server share the machine.
"""

import collections
import gzip
import json
import os
import resource
import socket
import threading
import time
from urllib.parse import urlsplit

from installation import KEY, PROJECT, TOKEN, Campaign, Client, Unacknowledged
from traffic import Evaluations, Memory, percentile, request_bytes, sample_evaluations, seconds_until_calm, start_filled, trends

# What is promised (docs/operations.md): of the memory, and of the median and 99th percentile of evaluations.
MEMORY_MEBIBYTES = 1_024
MEDIAN_FACTOR, MEDIAN_MILLISECONDS, P99_MILLISECONDS = 10, 5, 500
RECOVERY_SECONDS = 5
IDLE_CONNECTIONS, SLOW_CONNECTIONS, DEAF_CONNECTIONS, SENDERS = 5_000, 500, 64, 4
HEAD = f"Host: pennon\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
BOMB = gzip.compress(b'{"api_key":"' + TOKEN.encode() + b'","batch":[' + b" " * (512 << 20) + b"]}", compresslevel=9, mtime=0)
DEEP = "[" * 2_000_000
PATTERNS = ["(a{1000}){1000}", "(" * 5_000 + "a" + ")" * 5_000, "(x+x+)+y" * 50, "|".join(f"a{number}.*b" for number in range(20_000))]


class Attack:
    """One kind of attack on `server` until `end`."""

    def __init__(self, server, random):
        self.url, self.random = server.url, random
        self.address = (urlsplit(server.url).hostname, urlsplit(server.url).port)
        self.stopped, self.statuses, self.threads, self.sockets = threading.Event(), collections.Counter(), [], []

    def begin(self, name):
        work = getattr(self, name)
        for number in range(1 if name in ("idle_connections", "slow_headers", "slow_bodies", "deaf_readers") else SENDERS):
            thread = threading.Thread(target=work, args=(number,), daemon=True)
            thread.start()
            self.threads.append(thread)
        return self

    def end(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()
        for one in self.sockets:
            one.close()
        return self.statuses

    def connect(self, count, first_bytes):
        """Opens `count` connections, which stay open."""
        for _ in range(count):
            if self.stopped.is_set():
                return
            try:
                one = socket.create_connection(self.address, timeout=5)
                one.sendall(first_bytes)
                one.setblocking(False)
                self.sockets.append(one)
                self.statuses["connected"] += 1
            except OSError as error:
                self.statuses[type(error).__name__] += 1

    def drip(self, text):
        """Sends a byte over each connection, again and again; closed ones are replaced by new ones."""
        while not self.stopped.wait(0.5):
            for one in list(self.sockets):
                try:
                    one.send(text)
                except OSError as error:
                    self.statuses[f"closed: {type(error).__name__}"] += 1
                    self.sockets.remove(one)
            self.connect(SLOW_CONNECTIONS - len(self.sockets), self.first_bytes)

    def idle_connections(self, _):
        self.connect(IDLE_CONNECTIONS, b"")
        self.stopped.wait()

    def slow_headers(self, _):
        self.first_bytes = b"GET / HTTP/1.1\r\nX-Slow: "
        self.connect(SLOW_CONNECTIONS, self.first_bytes)
        self.drip(b"x")

    def slow_bodies(self, _):
        self.first_bytes = f"POST /batch/ HTTP/1.1\r\n{HEAD}Content-Length: 1000000\r\n\r\n".encode()
        self.connect(SLOW_CONNECTIONS, self.first_bytes)
        self.drip(b" ")

    def deaf_readers(self, _):
        """Requests of large responses, sent ahead, whose responses are never read."""
        self.connect(DEAF_CONNECTIONS, b"".join([request_bytes("GET", f"{PROJECT}/feature_flags/?limit=200", None)] * 50))
        self.stopped.wait()

    def send(self, path, body, **headers):
        """Sends `body` as it is, over a connection of its own."""
        client = Client(self.url).connection
        try:
            headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", **headers}
            client.request("POST", path, body, headers)
            response = client.getresponse()
            response.read()
            self.statuses[response.status] += 1
            if response.status == 503:
                self.stopped.wait(0.05)
        except OSError as error:
            # The server may close while the request is still being sent.
            self.statuses[type(error).__name__] += 1
        finally:
            client.close()

    def repeat(self, bodies, **headers):
        while not self.stopped.is_set():
            path, body = self.random.choice(bodies)
            self.send(path, body if isinstance(body, (bytes, str)) else json.dumps(body), **headers)

    def zip_bombs(self, _):
        self.repeat([("/batch/", BOMB), ("/flags/?v=2", BOMB), ("/i/v0/e/", BOMB)], **{"Content-Encoding": "gzip"})

    def deep_json(self, _):
        flags = '{"key":"a","filters":{"groups":' + DEEP
        self.repeat([("/batch/", DEEP), ("/flags/?v=2", DEEP), (f"{PROJECT}/query/", '{"query":' + DEEP), (f"{PROJECT}/feature_flags/", flags)])

    def giant_patterns(self, _):
        by_regex = [{"key": "page", "value": pattern, "operator": "regex", "type": "event"} for pattern in PATTERNS]
        queries = [(f"{PROJECT}/query/", trends(properties=[one])) for one in by_regex]
        of_persons = [{"groups": [{"properties": [{**one, "type": "person"}], "rollout_percentage": 100}]} for one in by_regex]
        reach = [(f"{PROJECT}/feature_flags/user_blast_radius/", {"condition": one["groups"][0]}) for one in of_persons]
        self.repeat(queries + reach)

    def large_calculations(self, _):
        """A point for each minute of a year, a million values, and a list of a million values."""
        many = [{"key": "id", "value": [f"value-{number}" for number in range(200_000)], "operator": "exact", "type": "event"}]
        fine = {"interval": "minute", "dateRange": {"date_from": "-365d"}, "breakdownFilter": {"breakdown": "id", "breakdown_type": "event", "breakdown_limit": 1000}}
        coarse = {**fine, "interval": "day", "breakdownFilter": {"breakdown": "id", "breakdown_type": "event"}}
        self.repeat([(f"{PROJECT}/query/", json.dumps(trends(**one))) for one in (fine, coarse, {"properties": many})])

    def large_evaluations(self, _):
        """Evaluations with the largest bodies that are accepted, and larger ones."""
        properties = {f"key-{number}": "x" * 1_000 for number in range(900)}
        body = json.dumps({"token": TOKEN, "distinct_id": "person-1", "person_properties": properties})
        self.repeat([("/flags/?v=2", body), ("/flags/?v=2", body + " " * (30 << 20))])


ATTACKS = ["idle_connections", "slow_headers", "slow_bodies", "deaf_readers", "zip_bombs", "deep_json", "giant_patterns", "large_calculations",
           "large_evaluations"]


class HonestClient(threading.Thread):
    """Reads a list of flags again and again: milliseconds of each, and statuses."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.stopped, self.taken, self.statuses = server, threading.Event(), [], collections.Counter()

    def run(self):
        client = self.server.client()
        while not self.stopped.wait(0.05):
            began = time.monotonic()
            try:
                status, _ = client.get(f"{PROJECT}/feature_flags/?limit=10")
            except Unacknowledged as error:
                # Its connection may be closed as the one that was idle longest.
                status = str(error)
                client = self.server.client()
            self.taken.append((time.monotonic() - began) * 1000)
            self.statuses[status] += 1


def run_attack(campaign, server, name, calm):
    random = campaign.random(name)
    memory, honest, evaluations = Memory(server.process), HonestClient(server), Evaluations(server.url)
    honest.start()
    attack = Attack(server, random).begin(name)
    time.sleep(campaign.options.seconds)
    samples, statuses = evaluations.end(), attack.end()
    honest.stopped.set()
    honest.join()
    peak = max(memory.end())
    taken = [milliseconds for _, milliseconds, _ in samples]
    median, p99 = percentile(taken, 0.5), percentile(taken, 0.99)
    recovered = seconds_until_calm(server.url, MEDIAN_FACTOR * calm + MEDIAN_MILLISECONDS, 30)
    print(f"{name:20} evaluation p50 {median:6.1f} ms, p99 {p99:6.1f} ms; list of flags p50 {percentile(honest.taken, 0.5):6.1f} ms, p99 {percentile(honest.taken, 0.99):6.1f} ms; "
          f"memory {peak:4.0f} MiB; at rest after {recovered:.1f} s; {dict(statuses.most_common(6))}", flush=True)
    failed = collections.Counter(status for _, _, status in samples if status != 200)
    campaign.expect(sum(failed.values()) <= 3, f"{name}: evaluations: {dict(failed)}")
    honest_failed = {status: count for status, count in honest.statuses.items() if status != 200}
    campaign.expect(sum(honest_failed.values()) <= max(3, len(honest.taken) // 10), f"{name}: lists of flags: {honest_failed} of {len(honest.taken)}")
    campaign.expect(median <= MEDIAN_FACTOR * calm + MEDIAN_MILLISECONDS, f"{name}: the median of evaluations is {median:.1f} ms, without an attack {calm:.1f} ms")
    campaign.expect(p99 <= P99_MILLISECONDS, f"{name}: the p99 of evaluations is {p99:.1f} ms")
    campaign.expect(peak <= MEMORY_MEBIBYTES, f"{name}: {peak:.0f} MiB of memory")
    campaign.expect(recovered <= RECOVERY_SECONDS, f"{name}: evaluations are slow {recovered:.1f} s afterwards")
    bad = {status: count for status, count in statuses.items() if isinstance(status, int) and status >= 500 and status != 503}
    campaign.expect(not bad, f"{name}: {bad}")


def main():
    campaign = Campaign(__doc__, 1, seconds=(20.0, "seconds of each attack, 20 by default"), only=("", "one attack: " + ", ".join(ATTACKS)))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server, _ = start_filled(campaign)
    calm = percentile([taken for _, taken, _ in sample_evaluations(server.url, 5)], 0.5)
    print(f"without an attack: evaluation p50 {calm:.1f} ms on {os.cpu_count()} cores", flush=True)
    for name in [campaign.options.only] if campaign.options.only else ATTACKS:
        run_attack(campaign, server, name, calm)
        if server.process.poll() is not None:
            campaign.finding(f"{name}: the server ended: {server.log()[-1000:]}")
            break
    status, body = server.client().get("/_health")
    campaign.expect(status == 200, f"/_health afterwards: {status} {body}")
    server.stop()
    campaign.expect("panicked" not in server.log(), f"a panic: {server.log()[-1500:]}")
    campaign.finish(f"{len(ATTACKS)} attacks")


if __name__ == "__main__":
    main()
