#!/usr/bin/env python3
"""Creates the backup of a small installation that contains every kind of row and object, for `cli/tests/process/formats.rs`.

    make.py PENNON DIRECTORY

DIRECTORY contains `workspace.json` and `history.jsonl`; `backup` is created beside them. Standard library only. The final
contents of the installation:

* flags `plain` (created, renamed once, a role has access), `secret` (an encrypted payload), `long` (a long one), `gone`
  (deleted), `members` (for a static cohort), `follower` (depends on `plain`); a cohort with a long list, one by rules, an action, a dashboard
* the insight `funnel` (on the dashboard, shared, viewed, its result cached)
* from `history.jsonl`: a segment, persons, groups, person links
* captured and compacted: the device that cy had, cy, the company beta; captured and erased: gone-1; captured and still in a block: u5's
  sign-up, dee and her device
* background calculations, one of them started immediately before the server was killed
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

KEY = "phx_formats_0123456789012345678901234567890123"
TOKEN = "phc_formats"
NOW = "2026-01-05T10:00:00Z"
ROLE = "01900000-0000-7000-8000-0000000000aa"
PROJECT = "/api/projects/1/"
JANUARY = {"date_from": "2024-01-01", "date_to": "2024-01-31"}
STEPS = ["visit", "sign up", "pay"]


def nodes(names):
    return [{"kind": "EventsNode", "event": name, "name": name} for name in names]


FUNNEL = {"kind": "FunnelsQuery", "dateRange": JANUARY, "series": nodes(STEPS)}
TREND = {"kind": "TrendsQuery", "dateRange": JANUARY, "interval": "day", "series": nodes(["visit"])}


class Server:
    def __init__(self, binary, data, *more):
        command = [binary, "serve", "--port", "0", "--now", NOW, "--data", data, *more]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if line.startswith("Pennon serves on "):
                self.address = line.split()[-1]
            if line.startswith("Ctrl-C"):
                return
        raise AssertionError("the server ended while starting")

    def send(self, method, path, body=None, headers=None):
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", **(headers or {})}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, headers, method=method)
        with urllib.request.urlopen(request) as response:
            text = response.read()
            return json.loads(text) if text else None

    def create(self, what, **body):
        return self.send("POST", f"{PROJECT}{what}/", body)["id"]

    def capture(self, *events):
        batch = [{"event": event, "distinct_id": who, "timestamp": f"2024-01-{day:02}T{hour:02}:00:00Z",
                  "properties": properties} for event, who, day, hour, properties in events]
        self.send("POST", "/batch/", {"api_key": TOKEN, "batch": batch})

    def kill(self):
        self.process.kill()
        self.process.wait()


def flags(server, members):
    plain = server.create("feature_flags", key="plain")
    server.send("PATCH", f"{PROJECT}feature_flags/{plain}/", {"name": "renamed"})
    server.create(f"feature_flags/{plain}/role_access", role_id=ROLE)
    all_persons = [{"properties": []}]
    server.create("feature_flags", key="secret", is_remote_configuration=True, has_encrypted_payloads=True,
                  filters={"groups": all_persons, "payloads": {"true": "\"hidden\""}})
    server.create("feature_flags", key="long", is_remote_configuration=True,
                  filters={"groups": all_persons, "payloads": {"true": json.dumps("long " * 1500)}})
    gone = server.create("feature_flags", key="gone")
    server.send("PATCH", f"{PROJECT}feature_flags/{gone}/", {"deleted": True})
    of_cohort = [{"key": "id", "type": "cohort", "value": members}]
    server.create("feature_flags", key="members", filters={"groups": [{"properties": of_cohort}]})
    on_plain = [{"key": str(plain), "type": "flag", "value": True, "operator": "flag_evaluates_to"}]
    server.create("feature_flags", key="follower", filters={"groups": [{"properties": on_plain}]})
    server.send("GET", f"/flags/definitions?token={TOKEN}&send_cohorts")


def insights(server):
    dashboard = server.create("dashboards", name="Board")
    server.create("actions", name="Paid", steps=[{"event": "pay"}])
    funnel = server.send("POST", f"{PROJECT}insights/", {
        "name": "funnel", "saved": True, "dashboards": [dashboard],
        "query": {"kind": "InsightVizNode", "source": FUNNEL}}, {"Idempotency-Key": "funnel"})["id"]
    server.send("GET", f"{PROJECT}insights/{funnel}/?refresh=blocking")
    server.send("POST", f"{PROJECT}insights/{funnel}/viewed/")
    server.send("PATCH", f"{PROJECT}insights/{funnel}/sharing/", {"enabled": True})


def fill(server, pennon):
    """Creates the contents above; the last calculation is started immediately before the server is killed."""
    server.capture(("visit", "device-1", 8, 10, {}), ("visit", "gone-1", 9, 10, {}),
                   ("$groupidentify", "u1", 8, 10, {"$group_type": "company", "$group_key": "beta",
                                                    "$group_set": {"name": "Beta Ltd"}}))
    server.capture(("$identify", "cy", 8, 11, {"$anon_distinct_id": "device-1", "$set": {"email": "cy@example.com"}}),
                   ("sign up", "cy", 8, 11, {}), ("pay", "cy", 8, 12, {"price": 20}))
    pennon("compact")
    pennon("delete", "--person", "gone-1", "--yes")
    pennon("compact")
    server.capture(("sign up", "u5", 5, 11, {}), ("visit", "device-2", 10, 10, {}),
                   ("$identify", "dee", 10, 11, {"$anon_distinct_id": "device-2"}), ("sign up", "dee", 10, 11, {}))
    members = server.create("cohorts", name="Members", is_static=True,
                            distinct_ids=["u1", "u2", *(f"m{number}" for number in range(1100))])
    by_plan = {"type": "OR", "values": [{"type": "AND", "values": [
        {"key": "plan", "type": "person", "value": ["pro"], "operator": "exact"}]}]}
    server.create("cohorts", name="Pro", filters={"properties": by_plan})
    flags(server, members)
    insights(server)
    server.send("POST", f"{PROJECT}query/", {"query": TREND, "refresh": "async", "client_query_id": "left"})


def main(binary, directory):
    binary, directory = os.path.abspath(binary), Path(directory).resolve()
    with tempfile.TemporaryDirectory() as work:
        data = os.path.join(work, "data")

        def pennon(*command):
            subprocess.run([binary, *command, "--data", data], check=True, stdout=subprocess.DEVNULL)

        pennon("apply", str(directory / "workspace.json"))
        pennon("import", str(directory / "history.jsonl"), "--project", "1")
        server = Server(binary, data)
        try:
            fill(server, pennon)
        finally:
            server.kill()
        shutil.rmtree(directory / "backup", ignore_errors=True)
        pennon("backup", "--with-payload-key", "--out", str(directory / "backup"))
    size = sum(file.stat().st_size for file in (directory / "backup").rglob("*") if file.is_file())
    print(f"{directory / 'backup'}: {size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
