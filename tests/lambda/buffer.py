"""The capture buffer: events pass the function, a queue and the function again as its consumer, and count as those that the local
server stores directly.

Deliveries are repeated and out of order, invocations fail, time out and end, a store write is completed after its invocation has failed,
some messages are damaged, and the queue throttles or loses its responses. At the end nothing is lost, nothing counts twice, and the
dead letters are exactly the damaged messages.
"""

import base64
import gzip
import json
import os
import signal
import threading
import time
import uuid
from pathlib import Path

import events
import gateways
from runtime import Function
from scenario import P
from sqs import Queue
from store import BLOCKS, WRITES, Proxy

# Of the queue in the template, which tests/template compares.
MESSAGE_BYTES_MAX, RECEIVES_MAX = 65_536, 20
TIMEOUT = 15.0
SINGLE_EVENTS = 600


def requests(token):
    """Bodies of requests: single events, batches, repeated ones, compressed ones."""
    def event(name, number, **more):
        return {"event": name, "distinct_id": f"buffered-{number % 50}", "properties": {"$current_url": f"https://shop.example.com/{number}"}, **more}

    def body(document):
        return json.dumps({"api_key": token, **document}).encode()

    bodies = [body(event("buffered_single", number)) for number in range(SINGLE_EVENTS)]
    bodies += [body({"batch": [event("buffered_batch", number) for number in range(100)]}) for _ in range(5)]
    named = str(uuid.uuid4())
    # Sent three times by its client, with one uuid.
    bodies += [body(event("buffered_repeated", 1, uuid=named))] * 3
    bodies.append(gzip.compress(body({"batch": [event("buffered_gzip", number) for number in range(30)]})))
    bodies.append(body({"batch": [event("buffered_large", number, uuid=str(uuid.uuid4()), properties={"text": uuid.uuid4().hex * 4}) for number in range(2500)]}))
    bodies.append(body({"event": "$identify", "distinct_id": "buffered-ada", "properties": {"$anon_distinct_id": "buffered-1"}}))
    return bodies


COUNTS = {"buffered_single": SINGLE_EVENTS, "buffered_batch": 500, "buffered_repeated": 1, "buffered_gzip": 30, "buffered_large": 2500}


def post(body):
    return events.Request("POST", "/batch/", [], [("Content-Type", "text/plain")], body)


def counts_query(names):
    series = [{"kind": "EventsNode", "event": name, "name": name, "math": "total"} for name in names]
    return {"query": {"kind": "TrendsQuery", "series": series, "interval": "day", "dateRange": {"date_from": "-2d"}}, "refresh": "force_blocking"}


def persons_query():
    series = [{"kind": "EventsNode", "event": "buffered_batch", "math": "dau"}]
    return {"query": {"kind": "TrendsQuery", "series": series, "interval": "month", "dateRange": {"date_from": "-2d"}}, "refresh": "force_blocking"}


class Check:
    def __init__(self, server, calculation, known):
        self.server, self.calculation, self.known, self.failures = server, calculation, known, []

    def expect(self, what, given, expected):
        if given != expected:
            self.failures.append(f"buffer: {what}: {given!r:.300} instead of {expected!r:.300}")

    def query(self, body):
        headers = [("Authorization", f"Bearer {self.known['key']}"), ("Content-Type", "application/json")]
        return events.Request("POST", f"{P}/query/", [], headers, json.dumps(body).encode())

    def counts(self):
        status, _, text = events.response_of(self.calculation.invoke(events.http_api(self.query(counts_query(COUNTS)))).value())
        assert status == 200, text
        return {name: int(it["count"]) for name, it in zip(COUNTS, json.loads(text)["results"])}

    def results(self, body):
        """Results of both sides."""
        local = self.server.send(self.query(body), "x")
        function = events.response_of(self.calculation.invoke(events.http_api(self.query(body))).value())
        return [[(it["label"], it["data"]) for it in json.loads(text)["results"]] for _, _, text in (local, function)]

    def send(self, function, body):
        status, _, text = events.response_of(function.invoke(gateways.deployed(post(body))).value())
        self.expect("the response to events", (status, text), (200, b'{"status":1}'))

    def items(self):
        return [item for item in self.server.database.items(BLOCKS) if item["pk"]["S"].startswith("PROJECT#1#")]


def check(server, calculation, binaries, environment, directory, known):
    """Findings."""
    checked, queue = Check(server, calculation, known), Queue(MESSAGE_BYTES_MAX, RECEIVES_MAX)

    def capture(more=(), timeout=TIMEOUT):
        own = {**environment, **queue.environment(), **dict(more)}
        return Function(Path(binaries) / "capture", "capture", own, 512, timeout, log=Path(directory) / "buffer.log", directory=directory)

    try:
        store_through_the_queue(checked, queue, capture, known["token"])
        fail_to_send(checked, queue, capture, known["token"])
    finally:
        queue.close()
    return checked.failures


def store_through_the_queue(checked, queue, capture, token):
    bodies, before = requests(token), len(checked.items())
    for body in bodies:
        checked.expect("the local server's response", checked.server.send(post(body), "x")[0], 200)
    with capture() as function:
        for body in bodies:
            checked.send(function, body)
        # One batch is larger than a message, and is stored directly.
        checked.expect("refused messages", queue.refusals, [])
        checked.expect("messages", queue.sent, len(bodies) - 1)
        large = {**dict.fromkeys(COUNTS, 0), "buffered_large": COUNTS["buffered_large"]}
        checked.expect("counts before any delivery", checked.counts(), large)
        damaged = put_damaged_messages(queue)
        fail_to_store(checked, queue, capture)
        between = len(checked.items())
        outcome = queue.deliver(function)
        checked.expect("the consumer's outcome", outcome.kind, "response")
        checked.expect("messages that come again", {message["id"] for message in queue.waiting}, damaged)
        checked.expect("counts after one delivery", checked.counts(), COUNTS)
        written = len(checked.items()) - between
        if not 1 <= written <= queue.sent // 20:
            checked.failures.append(f"buffer: {queue.sent} messages became {written} blocks")
        while queue.waiting:
            queue.deliver(function)
    checked.expect("dead letters", {message["id"] for message in queue.dead_letters}, damaged)
    checked.expect("counts after repeated deliveries", checked.counts(), COUNTS)
    for body in (counts_query(COUNTS), persons_query()):
        local, function = checked.results(body)
        checked.expect("results of buffered events", function, local)
    checked.expect("blocks were written", len(checked.items()) > before, True)


def put_damaged_messages(queue):
    """Messages that no consumer can read; their ids."""
    sound = json.loads(queue.waiting[0]["body"])
    flipped = bytearray(base64.b64decode(sound["block"]))
    flipped[len(flipped) // 2] ^= 1
    bodies = ["hello", "{}", json.dumps({**sound, "project": sound["project"] + 1}), json.dumps({**sound, "block": sound["block"][:-8]}),
              json.dumps({**sound, "block": base64.b64encode(flipped).decode()})]
    return {queue.put(body)["id"] for body in bodies}


def fail_to_store(checked, queue, capture):
    """Invocations that store nothing, or report nothing of what they store: all messages come again."""
    sent = len(queue.waiting)
    with capture({"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:9"}) as unreachable:
        queue.deliver(unreachable)
    checked.expect("messages after a delivery without a table", len(queue.waiting), sent)
    # Its writes are completed after the invocation has ended: what it stored is delivered again.
    proxy = Proxy(checked.server.dynamodb, writing=3.0)
    with capture({"AWS_ENDPOINT_URL_DYNAMODB": proxy.url}, timeout=2.0) as slow:
        queue.deliver(slow)
    checked.expect("messages after a delivery whose writes were too slow", len(queue.waiting), sent)
    end = time.monotonic() + 20
    while proxy.since(time.monotonic()) and time.monotonic() < end:
        time.sleep(0.05)
    proxy.close()
    checked.expect("a late write has stored events", checked.counts()["buffered_single"] > 0, True)
    proxy = Proxy(checked.server.dynamodb, writing=3.0)
    with capture({"AWS_ENDPOINT_URL_DYNAMODB": proxy.url}) as killed:
        threading.Thread(target=kill_at_first_write, args=(killed, proxy), daemon=True).start()
        outcome = queue.deliver(killed)
    proxy.close()
    checked.expect("the outcome of a function that was killed", outcome.kind, "ended")
    checked.expect("messages after a function that was killed", len(queue.waiting), sent)


def kill_at_first_write(function, proxy):
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end and not WRITES & set(proxy.since(time.monotonic())):
        time.sleep(0.01)
    os.killpg(function.process.pid, signal.SIGKILL)


def fail_to_send(checked, queue, capture, token):
    """A queue that throttles, or whose responses are lost: events are stored directly, and count once if they were sent too."""
    counts, sent = checked.counts(), queue.sent
    for number, failing in enumerate(("throttled", "lost"), 1):
        queue.failing = failing
        with capture() as function:
            for _ in range(3):
                checked.send(function, json.dumps({"api_key": token, "event": "buffered_gzip", "distinct_id": "buffered-1"}).encode())
        expected = {**counts, "buffered_gzip": counts["buffered_gzip"] + 3 * number}
        checked.expect(f"counts with a queue that is {failing}", checked.counts(), expected)
    queue.failing = None
    # A call and its retry were stored although their responses were lost.
    checked.expect("messages without a response", 1 <= queue.sent - sent <= 2, True)
    # A function that no longer sends to the queue still consumes it (CaptureBuffer=drain).
    with capture({"PENNON_CAPTURE_QUEUE_URL": ""}) as draining:
        checked.send(draining, json.dumps({"api_key": token, "event": "buffered_batch", "distinct_id": "buffered-1"}).encode())
        while queue.waiting:
            queue.deliver(draining)
    expected = {**expected, "buffered_batch": expected["buffered_batch"] + 1}
    checked.expect("counts after all deliveries", checked.counts(), expected)
    checked.expect("dead letters of sound messages", len(queue.dead_letters), 5)
