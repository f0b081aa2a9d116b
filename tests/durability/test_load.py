"""Tests of the comparison with the ledger: each loss, copy or half of a write is a finding, and what is permitted is none."""

import random
import types
import unittest

import load
from load import KINDS, Ledger, Record, verify_events, verify_merges, verify_records


class Campaign:
    def __init__(self):
        self.findings = []

    def expect(self, condition, text):
        if not condition:
            self.findings.append(text)
        return condition


class Client:
    """Responses of an installation with these records, log entries, persons and number of events."""

    def __init__(self, records=(), entries=1, persons=None, counted=0):
        self.records, self.entries, self.persons, self.counted = list(records), entries, persons or {}, counted

    def get(self, path):
        if "/activity/" in path:
            return 200, {"total_count": self.entries}
        if "/persons/" in path:
            ids = self.persons.get(path.rpartition("=")[2], [])
            return 200, {"results": [{"distinct_ids": ids}] if ids else []}
        own = [it for it in self.records if path.startswith(KINDS[it["kind"]].route)]
        if "?limit=" in path:
            return 200, {"results": own, "next": None}
        return 200, next(it for it in own if path.endswith(f"/{it['id']}/"))

    def post(self, path, body):
        return 200, {"results": [{"aggregated_value": self.counted}]}


def flag(number, name="flag-a", other=None):
    return {"kind": "flag", "id": 1, "key": name, **KINDS["flag"].fields_of(number), **({"name": f"value {other}"} if other else {})}


class Events(unittest.TestCase):
    def findings(self, stored, counted=None, events=(), missing=(), uncertain=()):
        ledger = Ledger(Campaign())
        ledger.events, ledger.missing = set(events), set(missing)
        ledger.uncertain = [("/batch/", {}, uuids, ()) for uuids in uncertain]
        copies = {it: [{}] * count for it, count in stored.items()}
        original, load.exported_events = load.exported_events, lambda _: copies
        try:
            verify_events(ledger, types.SimpleNamespace(installation=None), Client(counted=len(stored) if counted is None else counted))
        finally:
            load.exported_events = original
        return ledger.campaign.findings

    def test_what_is_permitted(self):
        self.assertEqual(self.findings({"a": 1, "b": 1}, events="ab"), [])
        self.assertEqual(self.findings({"a": 1, "b": 1, "c": 1}, events="a", uncertain=[["b", "c"], ["d", "e"]]), [])

    def test_each_violation(self):
        for words, arguments in [("missing", dict(stored={"a": 1}, events="ab")), ("more than once", dict(stored={"a": 2}, events="a")),
                                 ("earlier read did not find", dict(stored={"a": 1}, missing="a")), ("1 of the 2 events", dict(stored={"a": 1}, uncertain=[["a", "b"]])),
                                 ("not sent", dict(stored={"a": 1})), ("a query counts 2", dict(stored={"a": 1}, events="a", counted=2))]:
            found = self.findings(**arguments)
            self.assertEqual(len(found), 1, found)
            self.assertIn(words, found[0])


class Records(unittest.TestCase):
    def findings(self, records, number, uncertain=None, writes=1, entries=1):
        ledger, record = Ledger(Campaign()), Record("flag", "flag-a")
        record.id, record.number, record.uncertain, record.writes = number and 1, number, uncertain, writes
        ledger.records, ledger.touched = [record], {record}
        verify_records(ledger, Client(records, entries), random.Random(1))
        return ledger.campaign.findings

    def test_what_is_permitted(self):
        self.assertEqual(self.findings([flag(5)], 5), [])
        self.assertEqual(self.findings([flag(5)], 5, uncertain=6), [])
        self.assertEqual(self.findings([flag(6)], 5, uncertain=6, entries=2), [])
        self.assertEqual(self.findings([], None, uncertain=6, writes=0), [])

    def test_each_violation(self):
        for words, arguments in [("is missing", dict(records=[], number=5)), ("there 2 times", dict(records=[flag(5), flag(5)], number=5)),
                                 ("were written", dict(records=[flag(4)], number=5)), ("were written", dict(records=[flag(5, other=6)], number=5, uncertain=6)),
                                 ("2 entries in its activity log, 1 writes", dict(records=[flag(5)], number=5, entries=2)),
                                 ("1 entries in its activity log, 2 writes", dict(records=[flag(6)], number=5, uncertain=6)),
                                 ("not written", dict(records=[flag(5), flag(5, "flag-b")], number=5))]:
            found = self.findings(**arguments)
            self.assertEqual(len(found), 1, found)
            self.assertIn(words, found[0])


class Merges(unittest.TestCase):
    def test_a_lost_merge(self):
        ledger = Ledger(Campaign())
        ledger.merges = {"anonymous": "user"}
        verify_merges(ledger, Client(persons={"anonymous": ["anonymous", "user"]}), random.Random(1))
        self.assertEqual(ledger.campaign.findings, [])
        verify_merges(ledger, Client(persons={"anonymous": ["anonymous"]}), random.Random(1))
        self.assertIn("was merged with user", ledger.campaign.findings[0])


if __name__ == "__main__":
    unittest.main()
