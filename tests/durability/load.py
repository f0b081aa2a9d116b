"""Concurrent writes with a ledger of what was acknowledged, and the comparison of an installation with the ledger.

The ledger has three states of a write: acknowledged, uncertain (sent, and no response came), and settled (an uncertain write
that a later read has found or not found). An acknowledged write must be there from then on, an uncertain one completely or not at
all, and what was once found or missing stays so.
"""

import base64
import threading
import time
import uuid

from installation import PROJECT, TOKEN, Unacknowledged, exported_events

EVENTS_FROM = "2024-01-01"
COUNT_QUERY = {"query": {"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": None}], "dateRange": {"date_from": EVENTS_FROM},
                         "trendsFilter": {"display": "BoldNumber"}}, "refresh": "force_blocking"}
LIST_LIMIT = 1000
UNTOUCHED_SHARE = 0.1


class Kind:
    """A kind of record: its route, and two fields that every write sets to the same number."""

    def __init__(self, route, name_field, fields_of, number_of):
        self.route, self.name_field, self.fields_of, self.number_of = f"{PROJECT}/{route}/", name_field, fields_of, number_of


KINDS = {
    "flag": Kind("feature_flags", "key",
                 lambda n: {"name": f"value {n}", "filters": {"groups": [{"properties": [{"key": "n", "value": [str(n)], "operator": "exact", "type": "person"}], "rollout_percentage": 100}]}},
                 lambda it: (it["name"], f"value {it['filters']['groups'][0]['properties'][0]['value'][0]}")),
    "insight": Kind("insights", "name",
                    lambda n: {"description": f"value {n}", "query": {"kind": "InsightVizNode", "source": {"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": f"value {n}"}]}}},
                    lambda it: (it["description"], it["query"]["source"]["series"][0]["event"])),
    "dashboard": Kind("dashboards", "name", lambda n: {"description": f"value {n}", "tags": [f"value {n}"]},
                      lambda it: (it["description"], it["tags"][0])),
}


class Record:
    """A flag, insight or dashboard: the number that its acknowledged content has, and that of an uncertain write."""

    def __init__(self, kind, name):
        self.kind, self.name, self.id = kind, name, None
        self.number, self.uncertain, self.writes = None, None, 0

    def acknowledge(self, number):
        self.number, self.uncertain, self.writes = number, None, self.writes + 1


class Ledger:
    def __init__(self, campaign):
        self.campaign, self.lock = campaign, threading.Lock()
        # Uuids of events that are there, of events that a read has shown to be missing, and bodies without a response.
        self.events, self.missing, self.uncertain = set(), set(), []
        # The distinct id that a merge was requested for, with the other one; what is uncertain stands with its event.
        self.merges, self.records, self.touched = {}, [], set()
        # Responses other than success, with their request.
        self.refusals, self.acknowledged = [], 0

    def refuse(self, what, status, body):
        with self.lock:
            self.refusals.append((what, status, body))


class Load:
    """Threads that write until `end`, each with its own connection and random numbers."""

    def __init__(self, server, ledger, name, text_bytes=0, stops_at_refusal=False):
        self.server, self.ledger, self.name, self.text_bytes, self.stops_at_refusal = server, ledger, name, text_bytes, stops_at_refusal
        self.ended = threading.Event()
        kinds = [self.capture, self.capture_one, self.merge, *(lambda *more, kind=kind: self.write_record(kind, *more) for kind in KINDS)]
        self.threads = [threading.Thread(target=self._run, args=(number, action), daemon=True) for number, action in enumerate(kinds)]

    def begin(self):
        for thread in self.threads:
            thread.start()
        return self

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def run(self, seconds):
        self.begin()
        self.ended.wait(seconds)
        self.end()

    def _run(self, number, action):
        random, client = self.ledger.campaign.random(self.name, number), self.server.client()
        turn = 0
        while not self.ended.is_set():
            turn += 1
            try:
                refused = action(client, random, f"{self.name}-{number}-{turn}") is False
            except Unacknowledged:
                return
            if refused and self.stops_at_refusal:
                return

    def _send_events(self, client, path, body, events, merges=()):
        uuids = [event["uuid"] for event in events]
        try:
            status, response = client.post(path, body)
        except Unacknowledged:
            with self.ledger.lock:
                self.ledger.uncertain.append((path, body, uuids, merges))
            raise
        if status != 200:
            self.ledger.refuse(path, status, response)
            # An error is no promise that nothing was stored.
            with self.ledger.lock:
                self.ledger.uncertain.append((path, body, uuids, merges))
            return False
        acknowledge_events(self.ledger, uuids, merges)
        return True

    def _event(self, random, distinct_id, name="seen", **properties):
        if self.text_bytes:
            properties["text"] = base64.b64encode(random.randbytes(self.text_bytes * 3 // 4)).decode()
        return {"event": name, "distinct_id": distinct_id, "uuid": str(uuid.UUID(int=random.getrandbits(128), version=4)),
                "timestamp": f"2024-01-{random.randint(1, 28):02}T10:00:00Z", "properties": properties}

    def capture(self, client, random, _):
        events = [self._event(random, f"person-{random.randrange(50)}", n=random.randrange(100)) for _ in range(random.randint(1, 12))]
        return self._send_events(client, "/batch/", {"api_key": TOKEN, "batch": events}, events)

    def capture_one(self, client, random, _):
        event = self._event(random, f"person-{random.randrange(50)}")
        return self._send_events(client, "/i/v0/e/", {"api_key": TOKEN, **event}, [event])

    def merge(self, client, random, name):
        anonymous, user = f"anonymous-{name}", f"user-{name}"
        if random.random() < 0.5:
            event = self._event(random, user, "$identify", **{"$anon_distinct_id": anonymous})
        else:
            event = self._event(random, user, "$create_alias", alias=anonymous)
        return self._send_events(client, "/batch/", {"api_key": TOKEN, "batch": [event]}, [event], [(anonymous, user)])

    def write_record(self, kind, client, random, name):
        own = [record for record in self.ledger.records if record.kind == kind and record.number is not None and record.uncertain is None]
        number = random.randrange(10**6)
        if len(own) < 3 or random.random() < 0.05:
            record = Record(kind, f"{kind}-{name}")
            with self.ledger.lock:
                self.ledger.records.append(record)
        else:
            record = random.choice(own[-10:])
        return write(self.ledger, client, record, number)


def acknowledge_events(ledger, uuids, merges):
    with ledger.lock:
        ledger.events.update(uuids)
        ledger.merges.update(merges)
        ledger.acknowledged += 1


def write(ledger, client, record, number):
    """Creates or changes a record; its content is uncertain until the response."""
    kind = KINDS[record.kind]
    if record.number == number:
        return True
    record.uncertain = number
    ledger.touched.add(record)
    if record.id is None:
        body = {kind.name_field: record.name, **kind.fields_of(number)}
        status, response = client.post(kind.route, body, Idempotency_Key=record.name)
    else:
        status, response = client.patch(f"{kind.route}{record.id}/", kind.fields_of(number))
    if status not in (200, 201):
        ledger.refuse(f"{record.kind} {record.name}", status, response)
        return False
    record.id = response["id"]
    record.acknowledge(number)
    ledger.acknowledged += 1
    return True


def verify(ledger, server, random):
    """Compares what the installation returns with the ledger, and settles uncertain writes."""
    client = server.client()
    verify_events(ledger, server, client)
    verify_records(ledger, client, random)
    verify_merges(ledger, client, random)
    resend(ledger, client, random)


def verify_events(ledger, server, client):
    campaign, stored = ledger.campaign, exported_events(server.installation)
    present = set(stored)
    lost, doubled = ledger.events - present, [it for it, copies in stored.items() if len(copies) > 1]
    campaign.expect(not lost, f"{len(lost)} of {len(ledger.events)} acknowledged events are missing, such as {sorted(lost)[:3]}")
    campaign.expect(not doubled, f"{len(doubled)} events are there more than once, such as {sorted(doubled)[:3]}")
    ghosts = ledger.missing & present
    campaign.expect(not ghosts, f"{len(ghosts)} events are there that an earlier read did not find, such as {sorted(ghosts)[:3]}")
    uncertain = set()
    for path, _, uuids, merges in ledger.uncertain:
        found = present.intersection(uuids)
        uncertain.update(uuids)
        campaign.expect(len(found) in (0, len(uuids)), f"{len(found)} of the {len(uuids)} events of an unacknowledged {path}")
        if found:
            ledger.merges.update(merges)
        ledger.events.update(found)
        ledger.missing.update(set(uuids) - found)
    unknown = present - ledger.events - uncertain - ghosts
    campaign.expect(not unknown, f"{len(unknown)} events are there that were not sent, such as {sorted(unknown)[:3]}")
    status, response = client.post(f"{PROJECT}/query/", COUNT_QUERY)
    counted = response["results"][0]["aggregated_value"] if status == 200 else f"status {status}: {response}"
    campaign.expect(counted == len(present), f"a query counts {counted} events, an export has {len(present)}")


def listed(client, kind):
    """Every record of the kind, by name, as a list."""
    by_name, offset = {}, 0
    while True:
        status, page = client.get(f"{kind.route}?limit={LIST_LIMIT}&offset={offset}")
        if status != 200:
            raise AssertionError(f"{kind.route}: {status}: {page}")
        for it in page["results"]:
            by_name.setdefault(it[kind.name_field], []).append(it)
        offset += LIST_LIMIT
        if not page["next"]:
            return by_name


def verify_records(ledger, client, random):
    campaign = ledger.campaign
    for name, kind in KINDS.items():
        found = listed(client, kind)
        expected = {record.name: record for record in ledger.records if record.kind == name}
        unknown = set(found) - set(expected)
        campaign.expect(not unknown, f"{name}s that were not written: {sorted(unknown)[:3]}")
        for record in expected.values():
            # Every record is in the list; what was not written since the last comparison is read by itself only at times.
            if record in ledger.touched or record.uncertain is not None or random.random() < UNTOUCHED_SHARE or len(found.get(record.name, [])) != 1:
                verify_record(ledger, client, kind, record, found.get(record.name, []))
    ledger.touched.clear()


def verify_record(ledger, client, kind, record, found):
    campaign, what = ledger.campaign, f"{record.kind} {record.name}"
    campaign.expect(len(found) <= 1, f"{what} is there {len(found)} times")
    if not found:
        if campaign.expect(record.number is None, f"{what} was acknowledged and is missing"):
            # It was not written. The name is not used again unless the request is repeated with its idempotency key.
            record.writes = 0
        return
    # Lists of dashboards have no tags or descriptions in some forms; the record has every field.
    status, current = client.get(f"{kind.route}{found[0]['id']}/")
    if not campaign.expect(status == 200, f"{what}: {status}: {current}"):
        return
    numbers = {text.removeprefix("value ") for text in kind.number_of(current)}
    permitted = {str(it) for it in (record.number, record.uncertain) if it is not None}
    if not campaign.expect(len(numbers) == 1 and numbers <= permitted, f"{what} has {sorted(numbers)}, and {sorted(permitted)} were written"):
        return
    if record.uncertain is not None and numbers == {str(record.uncertain)}:
        record.acknowledge(record.uncertain)
    record.id, record.uncertain = current["id"], None
    if record in ledger.touched:
        status, log = client.get(f"{kind.route}{record.id}/activity/?limit=1")
        entries = log["total_count"] if status == 200 else f"status {status}: {log}"
        campaign.expect(entries == record.writes, f"{what}: {entries} entries in its activity log, {record.writes} writes")


def verify_merges(ledger, client, random):
    """The newest merges, and some of all others."""
    merges = list(ledger.merges.items())
    for anonymous, user in merges[-20:] + random.sample(merges, min(5, len(merges))):
        status, page = client.get(f"{PROJECT}/persons/?distinct_id={anonymous}")
        ids = set(page["results"][0]["distinct_ids"]) if status == 200 and page["results"] else page
        ledger.campaign.expect(ids == {anonymous, user}, f"the person of {anonymous} has {ids}, and was merged with {user}")


def resend(ledger, client, random):
    """Sends some of the uncertain requests again, as clients do; the rest is never sent again."""
    uncertain, ledger.uncertain = ledger.uncertain, []
    for path, body, uuids, merges in uncertain:
        if random.random() < 0.5:
            continue
        status, response = client.post(path, body)
        if ledger.campaign.expect(status == 200, f"a repeated {path}: {status}: {response}"):
            ledger.missing.difference_update(uuids)
            acknowledge_events(ledger, uuids, merges)
    for record in [it for it in ledger.records if it.number is None]:
        number, is_repeated = record.uncertain, random.random() < 0.5
        if number is None or not is_repeated or not write(ledger, client, record, number):
            ledger.records.remove(record)


def wait_until(condition, seconds):
    """Whether the condition has come true within the seconds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
