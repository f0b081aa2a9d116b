"""Lists, logs, definitions and tables larger than a function's response limit: rejected with a named limit, compressed for clients
that accept it, and never dropped by the gateway, whose limit the emulator enforces (`runtime.py`).
"""

import json

from scenario import DATES, EVERYONE, P, Step

# Bytes of each record, and a number of records that exceeds the 6,000,000 bytes of a response.
LONG = 240_000
MANY = 27
PACKED = [("Accept-Encoding", "gzip")]


def steps():
    return [*flags(), *insights(), *cohorts(), *persons()]


def lists(function, path, largest):
    """A page of all, compressed and not, and the largest page that fits."""
    def step(status, limit, **more):
        return Step(function, "GET", path, status, query=[("limit", str(limit))], **more)

    return [step(400, 100), step(200, 100, headers=PACKED), step(200, largest)]


def flags():
    def body(number, letter):
        return {"key": f"long-{number}", "filters": {**EVERYONE, "payloads": {"true": [letter * LONG]}}}

    def step(method, below, status, body=None, **more):
        return Step("flags", method, f"{P}/feature_flags{below}", status, body, **more)

    made = [step("POST", "/", 201, body(number, "a"), save={f"long_{number}": "id"}) for number in range(MANY)]
    # Each entry of the log has the filters before and after the change.
    changed = [step("PATCH", f"/{{long_{number}}}/", 200, body(number, "b")) for number in range(14)]
    return [
        *made, *changed, *lists("flags", f"{P}/feature_flags/", 20), *lists("flags", f"{P}/feature_flags/activity/", 5),
        step("GET", "/local_evaluation/", 400), step("GET", "/local_evaluation/", 200, headers=PACKED),
        step("GET", "/my_flags/", 400), step("GET", "/my_flags/", 200, headers=PACKED),
        step("GET", "/evaluation_reasons/", 200, query=[("distinct_id", "ada")]),
        *[step("PATCH", f"/{{long_{number}}}/", 200, {"deleted": True}) for number in range(MANY)],
    ]


def insights():
    def step(method, below, status, body=None, **more):
        return Step("insights", method, f"{P}/insights{below}", status, body, **more)

    query = {"kind": "TextNode", "text": "c" * LONG}
    made = [step("POST", "/", 201, {"name": f"Long {number}", "query": query}, save={f"insight_{number}": "id", f"short_long_{number}": "short_id"})
            for number in range(MANY)]
    return [*made, *lists("insights", f"{P}/insights/", 20), step("GET", "/", 400, query=[("limit", "100"), ("format", "csv")]),
            *[step("PATCH", f"/{{insight_{number}}}/", 200, {"deleted": True}) for number in range(MANY)]]


def cohorts():
    leaf = {"key": "email", "type": "person", "operator": "exact", "value": [f"{number:04}" + "d" * 996 for number in range(240)]}
    filters = {"properties": {"type": "OR", "values": [{"type": "OR", "values": [leaf]}]}}
    made = [Step("insights", "POST", f"{P}/cohorts/", 201, {"name": f"Long {number}", "filters": filters},
                 save={f"cohort_{number}": "id"}) for number in range(MANY)]
    return [*made, *lists("insights", f"{P}/cohorts/", 20),
            *[Step("insights", "PATCH", f"{P}/cohorts/{{cohort_{number}}}/", 200, {"deleted": True}) for number in range(MANY)]]


def persons():
    def event(number):
        return {"event": "long", "distinct_id": f"long-{number}", "timestamp": "2024-02-03T10:00:00Z",
                "properties": {"$set": {"note": "e" * 800_000, "is_long": True}}}

    sent = [Step("capture", "POST", "/capture/", 200, {"api_key": "{token}", **event(number)}, key=None) for number in range(8)]
    only = json.dumps([{"key": "is_long", "type": "person", "operator": "exact", "value": True}])
    people = [("events", json.dumps([{"id": "long"}])), *DATES.items()]

    def step(path, status, query, **more):
        return Step("calculation", "GET", P + path, status, query=query, **more)

    return [
        *sent, step("/persons/", 400, [("properties", only)]), step("/persons/", 200, [("properties", only)], headers=PACKED),
        step("/persons/", 200, [("properties", only), ("limit", "5")]),
        step("/persons/trends/", 400, people), step("/persons/trends/", 200, people, headers=PACKED),
        step("/persons/trends/", 200, [*people, ("limit", "3")]),
    ]
