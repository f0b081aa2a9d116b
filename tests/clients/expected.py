"""The flags that all clients evaluate, the persons they evaluate them for, and the values that they must get.

The values are calculated here, with the bucketing hash that PostHog documents, independently of the server."""

import hashlib
import json

GROUP_TYPE = "company"
PAYLOADS = {"control": {"color": "red"}, "test": {"color": "blue", "sizes": [1, 2.5]}}
# Flags for servers only. A client that is not detected as a server does not get them: browsers, and posthog-node 3, which
# sends no User-Agent of its own.
SERVER_ONLY = {"server-only"}
STORED_PERSON = "stored-gold"
STORED_PROPERTIES = {"tier": "gold"}


def person_property(key, value):
    return {"key": key, "type": "person", "operator": "exact", "value": value}


def flag(key, properties=(), rollout=100, **others):
    groups = [{"properties": list(properties), "rollout_percentage": rollout}]
    filters = {"groups": groups, **others.pop("filters", {})}
    return {"key": key, "name": key, "filters": filters, **others}


FLAGS = [
    flag("everybody"),
    flag("half", rollout=50),
    flag("sent-plan", [person_property("plan", ["pro", "team"])]),
    flag("stored-tier", [person_property("tier", "gold")]),
    flag("company-half", rollout=50, filters={"aggregation_group_type_index": 0}),
    flag("server-only", evaluation_runtime="server"),
    flag("layout", filters={
        "multivariate": {"variants": [
            {"key": "control", "name": "", "rollout_percentage": 40}, {"key": "test", "name": "", "rollout_percentage": 60}]},
        "payloads": {variant: json.dumps(payload) for variant, payload in PAYLOADS.items()},
    }),
]


def person(distinct_id, company=None, **properties):
    return {"distinct_id": distinct_id, "properties": properties, "groups": {GROUP_TYPE: company} if company else {}}


PERSONS = [
    person("ada@example.com", "acme", plan="pro"),
    person("Zoë", "initech", plan="free"),
    person("Łódź 8", "acme GmbH", plan="team"),
    person("user-7", "globex"),
    person("0190f2f0-7c1e-7d5e-8d6b-2f0d5c7a9e11", "stark", plan="pro"),
    person("44"),
    person("user-6", "hooli", plan="Free trial"),
    person(STORED_PERSON, "acme", plan="pro"),
]


def hash_fraction(key, identifier, salt=""):
    """The hash of an identifier for a flag, between 0 and 1: the first 15 hexadecimal digits of a SHA-1."""
    digest = hashlib.sha1(f"{key}.{identifier}{salt}".encode()).hexdigest()
    return int(digest[:15], 16) / float(0xFFFFFFFFFFFFFFF)


def expected_values(who):
    """{flag key: value} for one of PERSONS, as returned to a server."""
    distinct_id, company = who["distinct_id"], who["groups"].get(GROUP_TYPE)
    return {
        "everybody": True,
        "half": hash_fraction("half", distinct_id) <= 0.5,
        "sent-plan": who["properties"].get("plan") in ("pro", "team"),
        "stored-tier": distinct_id == STORED_PERSON,
        "company-half": company is not None and hash_fraction("company-half", company) <= 0.5,
        "server-only": True,
        "layout": "control" if hash_fraction("layout", distinct_id, "variant") < 0.4 else "test",
    }


def compare_values(results, absent=None):
    """Differences between a round of a client's values, one for each of PERSONS, and the expected ones. `absent` is the value of
    a flag that the client must not get; None: it is detected as a server and gets all."""
    differences = []
    if len(results) != len(PERSONS):
        return [f"{len(results)} persons have results, {len(PERSONS)} expected"]
    for who, result in zip(PERSONS, results):
        expected = expected_values(who)
        payload = PAYLOADS[expected["layout"]]
        for key, value in expected.items():
            if key in SERVER_ONLY and absent is not None:
                value = absent[0]
            if key not in result["values"] or result["values"][key] != value:
                differences.append(f"{key} for {who['distinct_id']}: {result['values'].get(key)!r}, expected {value!r}")
        if result["payload"] != payload:
            differences.append(f"payload for {who['distinct_id']}: {result['payload']!r}, expected {payload!r}")
    return differences
