"""An installation with every stored class of data, and a fixed set of reads whose responses are compared."""

import base64
import json
import random
import shutil
import uuid

from installation import PROJECT, TOKEN, Installation, Server, Unacknowledged, exported_events

PERSONS, MERGES = 40, 330
# Texts of which a result has so many that it is too large for a row.
TEXTS, TEXT_CHARACTERS = 150, 6000
FROM, TO = "2024-01-01", "2024-12-31"
FLAG_IDS = [f"person-{number}" for number in range(0, PERSONS, 7)]
# Fields that change with each request or start.
VOLATILE = {"requestId", "request_id", "last_refresh", "cache_target_age", "next_allowed_client_refresh", "is_cached", "cache_key", "query_status",
            "evaluatedAt", "evaluated_at", "last_viewed_at", "last_used_at", "last_accessed_at", "last_called_at", "timings"}


def identity(number):
    return str(uuid.UUID(int=(1 << 120) + number, version=4))


def event(number, name, person, month, **properties):
    return {"event": name, "distinct_id": person, "uuid": identity(number), "timestamp": f"2024-{month:02}-{1 + number % 28:02}T{number % 24:02}:00:00Z",
            "properties": {"plan": f"plan {number % 5}", "amount": number % 97, **properties}}


def series(*names, **more):
    return [{"kind": "EventsNode", "event": name, **more} for name in names]


def queries():
    days = {"dateRange": {"date_from": FROM, "date_to": TO}}
    funnel = {"kind": "FunnelsQuery", "series": series("seen", "bought"), **days}
    return {
        "trend": {"kind": "TrendsQuery", "series": series("seen", "bought", "imported"), "interval": "month", **days},
        "persons by month": {"kind": "TrendsQuery", "series": series("seen", "imported", math="dau"), "interval": "month", **days},
        "breakdown": {"kind": "TrendsQuery", "series": series("bought"), "breakdownFilter": {"breakdown": "plan", "breakdown_type": "event"}, **days},
        "sum": {"kind": "TrendsQuery", "series": series("bought", math="sum", math_property="amount"), **days},
        "funnel": funnel,
        "by a person's property": {"kind": "TrendsQuery", "series": series("seen", "imported"), "interval": "month",
                                   "breakdownFilter": {"breakdown": "tier", "breakdown_type": "person"}, **days},
        "groups": {"kind": "TrendsQuery", "series": series("seen", "imported", math="unique_group", math_group_type_index=0), "interval": "month", **days},
        "retention": {"kind": "RetentionQuery", "retentionFilter": {"period": "Month", "totalIntervals": 6}, **days},
        # Its result is an object of its own, because it exceeds a row.
        "large": {"kind": "TrendsQuery", "series": series("wide"), "interval": "month",
                  "breakdownFilter": {"breakdown": "text", "breakdown_type": "event", "breakdown_limit": 1000}, **days},
    }


class Specimen:
    def __init__(self, binary, directory):
        self.binary, self.directory = binary, directory
        self.installation = Installation(binary, directory / "specimen")
        self.build()

    def build(self):
        workspace_of(self.installation)
        self.import_history()
        server = Server(self.installation).start()
        client = server.client()
        self.capture(client, 0, 4)
        self.installation.succeed("compact")
        self.capture(client, 400, 6)
        self.create_records(client)
        self.merge(client)
        self.installation.succeed("compact")
        self.capture(client, 800, 8)
        # Some results are stored.
        for node in queries().values():
            succeed(client.post(f"{PROJECT}/query/", {"query": node, "refresh": "blocking"}))
        self.backups = [self.directory / "backup", self.directory / "backup.tar"]
        for place in self.backups:
            self.installation.succeed("backup", "--out", place, "--with-payload-key")
        # The write-ahead log stays, because no process closes the database after the kill.
        succeed(client.patch(f"{PROJECT}/feature_flags/2/", {"name": "Flag 1, changed last"}))
        server.kill()

    def import_history(self):
        lines = [event(10_000 + number, "imported", f"person-{number % PERSONS}", 2) for number in range(300)]
        texts = random.Random(1)
        lines += [event(30_000 + number, "wide", f"person-{number % PERSONS}", 3, text=base64.b64encode(texts.randbytes(TEXT_CHARACTERS * 3 // 4)).decode())
                  for number in range(TEXTS)]
        persons = [{"person": {"distinct_ids": [f"person-{number}", f"device-{number}"], "properties": {"tier": f"tier {number % 3}"}}} for number in range(0, PERSONS, 2)]
        groups = [{"group": {"type": "company", "index": 0, "key": f"company-{number}", "properties": {"size": number}}} for number in range(5)]
        for name, records in (("events", lines), ("persons", persons), ("groups", groups)):
            file = self.directory / f"{name}.jsonl"
            file.write_text("".join(json.dumps(record) + "\n" for record in records))
            self.installation.succeed("import", file, "--project", "1")

    @staticmethod
    def capture(client, first, month):
        batch = [event(first + number, "bought" if number % 3 == 0 else "seen", f"person-{number % PERSONS}", month,
                       **{"$groups": {"company": f"company-{number % 5}"}, "$set": {"last": number}}) for number in range(120)]
        batch.append({"event": "$groupidentify", "distinct_id": "person-0", "uuid": identity(first + 300), "timestamp": f"2024-{month:02}-03T10:00:00Z",
                      "properties": {"$group_type": "company", "$group_key": "company-1", "$group_set": {"month": month}}})
        for number in range(6):
            batch.append(event(first + 310 + number, "$identify", f"user-{first + number}", month, **{"$anon_distinct_id": f"person-{first // 40 + 2 * number + 1}"}))
        for at in range(0, len(batch), 20):
            succeed(client.post("/batch/", {"api_key": TOKEN, "batch": batch[at:at + 20]}))

    @staticmethod
    def merge(client):
        """More merges than the log keeps as rows, so that a compaction folds them."""
        for number in range(MERGES):
            merge = event(20_000 + number, "$identify", f"member-{number}", 9, **{"$anon_distinct_id": f"visitor-{number}"})
            succeed(client.post("/batch/", {"api_key": TOKEN, "batch": [merge]}))

    @staticmethod
    def create_records(client):
        cohort = succeed(client.post(f"{PROJECT}/cohorts/", {"name": "listed", "is_static": True, "distinct_ids": [f"person-{n}" for n in range(0, PERSONS, 3)]}))
        rule = {"type": "OR", "values": [{"type": "AND", "values": [{"key": "tier", "type": "person", "value": ["tier 1"], "operator": "exact"}]}]}
        succeed(client.post(f"{PROJECT}/cohorts/", {"name": "ruled", "filters": {"properties": rule}}))
        succeed(client.post(f"{PROJECT}/actions/", {"name": "buying", "steps": [{"event": "bought"}]}))
        for number in range(6):
            member = [{"key": "id", "type": "cohort", "value": cohort["id"]}]
            tier = [{"key": "tier", "type": "person", "value": [f"tier {number % 3}"], "operator": "exact"}]
            groups = [{"properties": member if number % 2 else tier, "rollout_percentage": 100}, {"properties": [], "rollout_percentage": 10 * number}]
            succeed(client.post(f"{PROJECT}/feature_flags/", {"key": f"flag-{number}", "name": f"Flag {number}", "filters": {"groups": groups}}))
            succeed(client.patch(f"{PROJECT}/feature_flags/{number + 1}/", {"name": f"Flag {number}, changed"}))
        succeed(client.post(f"{PROJECT}/feature_flags/", {
            "key": "secret", "is_remote_configuration": True, "has_encrypted_payloads": True,
            "filters": {"groups": [{"properties": [], "rollout_percentage": 100}], "payloads": {"true": "\"a secret payload\""}}}))
        dashboard = succeed(client.post(f"{PROJECT}/dashboards/", {"name": "all"}))
        for name, node in queries().items():
            succeed(client.post(f"{PROJECT}/insights/", {"name": name, "saved": True, "dashboards": [dashboard["id"]], "query": {"kind": "InsightVizNode", "source": node}}))


def workspace_of(installation):
    """The workspace of all campaigns, with a group type."""
    from installation import WORKSPACE
    workspace = {**WORKSPACE, "projects": [{**WORKSPACE["projects"][0], "group_types": ["company"]}]}
    file = installation.data.parent / "workspace.json"
    file.write_text(json.dumps(workspace))
    installation.succeed("apply", file)


def succeed(response):
    status, body = response
    if status not in (200, 201):
        raise AssertionError(f"{status}: {body!r:.500}")
    return body


def stable(value):
    """The value without fields that change with each request."""
    if isinstance(value, dict):
        return {key: stable(it) for key, it in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [stable(it) for it in value]
    return value


READS = {
    "flags": ("GET", f"{PROJECT}/feature_flags/?limit=100"), "a flag": ("GET", f"{PROJECT}/feature_flags/3/"),
    "log of flags": ("GET", f"{PROJECT}/feature_flags/activity/?limit=100"), "log of a flag": ("GET", f"{PROJECT}/feature_flags/3/activity/"),
    "definitions": ("GET", f"{PROJECT}/feature_flags/local_evaluation/?send_cohorts"),
    "a secret payload": ("GET", f"{PROJECT}/feature_flags/secret/remote_config/"),
    "insights": ("GET", f"{PROJECT}/insights/?basic=true"), "an insight": ("GET", f"{PROJECT}/insights/2/"),
    "log of insights": ("GET", f"{PROJECT}/insights/activity/?limit=100"),
    "dashboards": ("GET", f"{PROJECT}/dashboards/"), "a dashboard": ("GET", f"{PROJECT}/dashboards/1/"),
    "cohorts": ("GET", f"{PROJECT}/cohorts/"), "a cohort": ("GET", f"{PROJECT}/cohorts/1/"), "actions": ("GET", f"{PROJECT}/actions/"),
    "events": ("GET", f"{PROJECT}/events/?limit=1000&after=2024-01-01&before=2025-01-01"),
    "names of events": ("GET", f"{PROJECT}/event_definitions/?limit=1000"), "names of properties": ("GET", f"{PROJECT}/property_definitions/?limit=1000"),
    "persons": ("GET", f"{PROJECT}/persons/?limit=1000"), "a person": ("GET", f"{PROJECT}/persons/?distinct_id=person-1"),
    "project": ("GET", f"{PROJECT}/"), "user": ("GET", "/api/users/@me/"),
    **{f"flags of {it}": ("POST", "/flags/?v=2", {"api_key": TOKEN, "distinct_id": it}) for it in FLAG_IDS},
    **{f"query {name}": ("POST", f"{PROJECT}/query/", {"query": node, "refresh": "force_blocking"}) for name, node in queries().items()},
    **{f"stored result {name}": ("POST", f"{PROJECT}/query/", {"query": node, "refresh": "blocking"}) for name, node in queries().items()},
}


def responses(server, with_export=False):
    """The response of each read: its status, and its body without what changes by itself. None where no response came."""
    client, found = server.client(), {}
    for name, request in READS.items():
        try:
            status, body = client.send(*request)
            # Links to other pages have the server's address.
            found[name] = status, stable(json.loads(json.dumps(body).replace(server.url, "http://server")))
        except Unacknowledged as error:
            found[name] = None, str(error)
    if with_export:
        try:
            found["export"] = 200, exported_events(server.installation)
        except AssertionError as error:
            found["export"] = 500, str(error)
    return found


def copied(installation, directory):
    """A copy of the installation, in place of an earlier one."""
    shutil.rmtree(directory, ignore_errors=True)
    return installation.copy_to(directory)
