"""What the campaigns under load share: an installation with flags, insights and events, evaluations at a fixed rate from a process of
their own, and the memory of the server."""

import http.client
import json
import multiprocessing
import re
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from installation import KEY, PROJECT, TOKEN, Installation, Server

FLAGS, INSIGHTS, EVENTS, PERSONS, PAGES = 200, 50, 100_000, 5_000, 2_000
EVENTS_OF_BATCH = 2_000
EVALUATIONS_A_SECOND = 50
EVALUATION = {"token": TOKEN, "distinct_id": "person-1", "person_properties": {"plan": "7"}}
# A response after this time is a failure of its own.
PATIENCE_SECONDS = 30


def trends(**fields):
    """The body of a calculation of trends that no cached result may replace."""
    series = [{"kind": "EventsNode", "event": "seen", "math": "dau"}]
    return {"query": {"kind": "TrendsQuery", "series": series, "dateRange": {"date_from": "-30d"}, **fields}, "refresh": "force_blocking"}


def start_filled(campaign):
    """A server with flags, insights and compacted events; it, and the ids of the insights."""
    installation = Installation(campaign.binary, campaign.directory / "data").create()
    server = Server(installation).start()
    insights = fill(server)
    server.stop()
    installation.succeed("compact")
    return server.start(), insights


def fill(server):
    """Creates flags, insights and events; the ids of the insights."""
    client = server.client()

    def create(path, body):
        status, record = client.post(f"{PROJECT}/{path}/", body)
        assert status == 201, (path, status, record)
        return record["id"]

    for number in range(FLAGS):
        groups = [{"properties": [{"key": "plan", "value": [str(number), "pro"], "type": "person"}], "rollout_percentage": 50}]
        create("feature_flags", {"key": f"flag-{number}", "filters": {"groups": groups}})
    insights = [create("insights", {"name": f"Insight {number}", "query": trends()["query"]}) for number in range(INSIGHTS)]
    for first in range(0, EVENTS, EVENTS_OF_BATCH):
        status, body = client.post("/batch/", {"api_key": TOKEN, "batch": [event("seen", number) for number in range(first, first + EVENTS_OF_BATCH)]})
        assert status == 200, (status, body)
    return insights


def event(name, number):
    properties = {"page": f"/{number % PAGES}", "number": number, "id": f"value-{number}"}
    return {"event": name, "distinct_id": f"person-{number % PERSONS}", "properties": properties}


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("inf")


def evaluate(url, stopped, results):
    """Sends evaluations at a fixed rate until `stopped`; puts (second since the start, milliseconds, status) of each into `results`."""
    address, body, samples = urlsplit(url).netloc, json.dumps(EVALUATION), []
    began, number, connection = time.monotonic(), 0, None
    while not stopped.is_set():
        due = began + number / EVALUATIONS_A_SECOND
        number += 1
        time.sleep(max(0, due - time.monotonic()))
        try:
            connection = connection or http.client.HTTPConnection(address, timeout=PATIENCE_SECONDS)
            connection.request("POST", "/flags/?v=2", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            status = response.status
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            connection, status = None, type(error).__name__
        # From the moment when it was due: an evaluation that waited for the one before it waited for the server.
        samples.append((due - began, (time.monotonic() - due) * 1000, status))
    results.put(samples)


class Evaluations:
    """Evaluations beside the traffic of a campaign."""

    def __init__(self, url):
        self.stopped, self.results = multiprocessing.Event(), multiprocessing.Queue()
        self.process = multiprocessing.Process(target=evaluate, args=(url, self.stopped, self.results), daemon=True)
        self.process.start()

    def end(self):
        """The samples of `evaluate`."""
        self.stopped.set()
        samples = self.results.get(timeout=2 * PATIENCE_SECONDS)
        self.process.join()
        return samples


def sample_evaluations(url, seconds):
    evaluations = Evaluations(url)
    time.sleep(seconds)
    return evaluations.end()


def seconds_until_calm(url, milliseconds, most):
    """Seconds until a second's evaluations all return 200 with a p90 within `milliseconds`; `most` if they do not."""
    began = time.monotonic()
    while time.monotonic() - began < most:
        samples = sample_evaluations(url, 1)
        if all(status == 200 for _, _, status in samples) and percentile([taken for _, taken, _ in samples], 0.9) <= milliseconds:
            return time.monotonic() - began - 1
    return most


class Memory:
    """The resident memory of a process in MiB, four times a second until `end`."""

    def __init__(self, process):
        self.status, self.samples, self.ended = Path(f"/proc/{process.pid}/status"), [], threading.Event()
        self.thread = threading.Thread(target=self.sample, daemon=True)
        self.thread.start()

    def sample(self):
        while not self.ended.wait(0.25):
            found = re.search(r"VmRSS:\s+(\d+)", self.status.read_text())
            if found:
                self.samples.append(int(found[1]) / 1024)

    def end(self):
        """The samples, in order."""
        self.ended.set()
        self.thread.join()
        return self.samples


def request_bytes(method, path, body):
    """A request as it is sent, with the key."""
    text = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: pennon\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    return head.encode() + text
