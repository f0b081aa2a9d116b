"""The worker: it calculates and compacts on records of the stream, compacts on schedule, and reports records to be retried."""

import json
from pathlib import Path

import events
from runtime import Function
from scenario import NODE, P
from store import BLOCKS, RECORDS

SCHEDULE = {"version": "0", "id": "53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa", "detail-type": "Scheduled Event", "source": "aws.events",
            "account": "123456789012", "time": "2026-01-01T00:00:00Z", "region": "us-east-1",
            "resources": ["arn:aws:events:us-east-1:123456789012:rule/compaction"], "detail": {}}


def record(number, key, name="INSERT"):
    """A record of a table's stream with keys only."""
    return {
        "eventID": f"{number:032x}", "eventName": name, "eventVersion": "1.1", "eventSource": "aws:dynamodb", "awsRegion": "us-east-1",
        "dynamodb": {"ApproximateCreationDateTime": 1700000000, "Keys": key, "SequenceNumber": f"{number:025d}", "SizeBytes": 59,
                     "StreamViewType": "KEYS_ONLY"},
        "eventSourceARN": "arn:aws:dynamodb:us-east-1:123456789012:table/loop-records/stream/2026-01-01T00:00:00.000"}


def check(server, calculation, binaries, environment, directory, known):
    """Findings."""
    failures = []

    def expect(what, given, expected):
        if given != expected:
            failures.append(f"worker: {what}: {given!r:.300} instead of {expected!r:.300}")

    def send(method, path, body=None):
        headers = [("Authorization", f"Bearer {known['key']}"), ("Content-Type", "application/json")]
        request = events.Request(method, path, [], headers, json.dumps(body).encode() if body else None)
        status, _, text = events.response_of(calculation.invoke(events.http_api(request)).value())
        return status, json.loads(text)

    query = {**NODE, "interval": "week"}
    _, begun = send("POST", f"{P}/query/", {"query": query, "refresh": "force_async", "client_query_id": "loop"})
    expect("a started calculation", begun["query_status"]["complete"], False)
    jobs = server.database.jobs()
    expect("number of jobs that wait", len(jobs), 1)
    with Function(Path(binaries) / "worker", "worker", environment, 1769, 600, log=Path(directory) / "worker.log", directory=directory) as worker:
        records = [record(1, jobs[0]), record(2, {"pk": {"S": "PROJECT#1"}, "sk": {"S": "VERSION"}}, "MODIFY")]
        expect("what comes again", worker.invoke({"Records": records}).value(), {"batchItemFailures": []})
        expect("number of jobs that are left", len(server.database.jobs()), 0)
        _, done = send("GET", f"{P}/query/loop/")
        expect("the end of the calculation", (done["query_status"]["complete"], done["query_status"]["error"]), (True, False))
        _, direct = send("POST", f"{P}/query/", {"query": query, "refresh": "force_blocking"})
        expect("its result", done["query_status"]["results"]["results"], direct["results"])
        # A record that is delivered twice has one effect.
        expect("what comes again of it", worker.invoke({"Records": records}).value(), {"batchItemFailures": []})
        wakes = [it for it in server.database.items(RECORDS) if it["pk"]["S"] == "COMPACTION#1" and it["sk"]["S"].startswith("WAKE#")]
        expect("a row of each minute with captured events", 1 <= len(wakes) <= 15, True)
        # Too few blocks, too young: they wait for more.
        woken = [record(3 + number, {"pk": it["pk"], "sk": it["sk"]}) for number, it in enumerate(wakes)]
        expect("what comes again of compaction", worker.invoke({"Records": woken}).value(), {"batchItemFailures": []})
        expect("blocks before the schedule", bool(list(server.database.items(BLOCKS))), True)
        expect("the scheduled run", worker.invoke(SCHEDULE).value(), None)
        _, after = send("POST", f"{P}/query/", {"query": query, "refresh": "force_blocking"})
        expect("the result after compaction", after["results"], direct["results"])
        expect("an unknown event", worker.invoke({"source": "elsewhere"}).value(), None)
    return failures
