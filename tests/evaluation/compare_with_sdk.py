#!/usr/bin/env python3
"""Compares 20,000 random (flag, person) pairs, evaluated by POST /flags/, with two other evaluations of the same flags:
the hash and the rules implemented below, and posthog-python's local evaluation of the definitions.

    pip install -r requirements.txt
    compare_with_sdk.py target/debug/pennon [--flags 200] [--persons 100] [--seed 1]

Prints the pairs that differ (at most 20) and exits 1 if there are any, or if the SDK decided fewer than half of them.
"""
import argparse
import hashlib
import json
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ORGANIZATION = "01900000-0000-7000-8000-000000000001"
TOKEN, KEY = "phc_compare", "phx_compare_0123456789012345678901234567890123"
PLANS, CITIES = ["free", "Pro", "team"], ["Berlin", "Łódź", "São Paulo"]
SCALE = float(0xFFFFFFFFFFFFFFF)


def hashed(prefix, identifier, salt=""):
    return int(hashlib.sha1(f"{prefix}{identifier}{salt}".encode()).hexdigest()[:15], 16) / SCALE


def text_of(value):
    return value if isinstance(value, str) else json.dumps(value)


def ascii_lower(text):
    return "".join(char.lower() if char.isascii() else char for char in text)


def holds(condition, properties):
    """Evaluates a property filter of a person, by the contract's table of operators."""
    key, operator, value = condition["key"], condition["operator"], condition["value"]
    there, given = key in properties, properties.get(key)
    if operator in ("is_set", "is_not_set"):
        return there == (operator == "is_set")
    if operator in ("exact", "is_not"):
        values = value if isinstance(value, list) else [value]
        equal = there and text_of(given).lower() in {text_of(one).lower() for one in values}
        return equal == (operator == "exact")
    if operator in ("icontains", "not_icontains"):
        found = there and ascii_lower(value) in ascii_lower(text_of(given))
        return found == (operator == "icontains")
    if operator in ("regex", "not_regex"):
        found = there and re.search(value, text_of(given)) is not None
        return found == (operator == "regex")
    try:
        given, bound = float(given), float(value)
    except (TypeError, ValueError):
        return False
    return {"gt": given > bound, "gte": given >= bound, "lt": given < bound, "lte": given <= bound}[operator]


def evaluate(flag, flags, person, known):
    """The value of a flag: False, True or a variant."""
    key = flag["key"]
    if key in known:
        return known[key]
    filters, identifier, properties = flag["filters"], person["id"], {"distinct_id": person["id"], **person["properties"]}
    known[key] = decide(key, filters, identifier, properties, flags, person, known)
    return known[key]


def decide(key, filters, identifier, properties, flags, person, known):
    if filters.get("feature_enrollment") and f"$feature_enrollment/{key}" in properties:
        return properties[f"$feature_enrollment/{key}"] in (True, "true")
    holdout = filters.get("holdout")
    if holdout and hashed("holdout-", identifier) <= holdout["exclusion_percentage"] / 100:
        return f"holdout-{holdout['id']}"
    variants = (filters.get("multivariate") or {}).get("variants", [])
    for group in filters["groups"]:
        dependencies = [one for one in group["properties"] if one["type"] == "flag"]
        others = [one for one in group["properties"] if one["type"] != "flag"]
        met = all(bool(evaluate(flags[int(one["key"])], flags, person, known)) == one["value"] for one in dependencies)
        if not (met and all(holds(one, properties) for one in others)):
            continue
        rollout = group["rollout_percentage"]
        if rollout < 100 and hashed(f"{key}.", identifier) > rollout / 100:
            continue
        if group.get("variant") in [one["key"] for one in variants]:
            return group["variant"]
        low, at = 0.0, hashed(f"{key}.", identifier, "variant")
        for variant in variants:
            if low <= at < low + variant["rollout_percentage"] / 100:
                return variant["key"]
            low += variant["rollout_percentage"] / 100
        return True
    return False


def named(flag, flags):
    """The properties that a flag reads, directly or through flags that it depends on."""
    keys = {f"$feature_enrollment/{flag['key']}"} if flag["filters"].get("feature_enrollment") else set()
    for group in flag["filters"]["groups"]:
        for one in group["properties"]:
            keys |= named(flags[int(one["key"])], flags) if one["type"] == "flag" else {one["key"]}
    return keys


def random_property(rng):
    choice = rng.randrange(6)
    operator, key, value = [
        lambda: (rng.choice(["exact", "is_not"]), "plan", rng.choice([rng.choice(PLANS), rng.sample(PLANS, 2)])),
        lambda: (rng.choice(["icontains", "not_icontains"]), "city", rng.choice(["er", "Ó", "s", "paulo"])),
        lambda: (rng.choice(["gt", "gte", "lt", "lte"]), "age", str(rng.randrange(10, 80))),
        lambda: (rng.choice(["is_set", "is_not_set"]), rng.choice(["plan", "age", "missing"]), "x"),
        lambda: (rng.choice(["regex", "not_regex"]), "mail", rng.choice([r"^a.*@x\.org$", r"[0-9]{2}@", "org$"])),
        lambda: (rng.choice(["exact", "is_not"]), "distinct_id", [f"person-{rng.randrange(100)}" for _ in range(30)]),
    ][choice]()
    return {"key": key, "operator": operator, "value": value, "type": "person"}


def random_flag(rng, number, earlier):
    variants = rng.choice([[], [50, 50], [33.33, 33.33, 33.34], [10, 20, 70], [100, 0]])
    variants = [{"key": f"v{place}", "name": "", "rollout_percentage": share} for place, share in enumerate(variants)]
    groups = []
    for _ in range(rng.randrange(1, 4)):
        properties = [random_property(rng) for _ in range(rng.randrange(3))]
        if earlier and rng.random() < 0.1:
            properties.append({"key": str(rng.choice(earlier)), "type": "flag", "operator": "flag_evaluates_to",
                               "value": rng.random() < 0.5})
        group = {"properties": properties, "rollout_percentage": rng.choice([0, 100, 50, rng.randrange(101), 12.5])}
        if variants and rng.random() < 0.2:
            group["variant"] = variants[0]["key"]
        groups.append(group)
    filters = {"groups": groups, "payloads": {}}
    if variants:
        filters["multivariate"] = {"variants": variants}
    if rng.random() < 0.1:
        filters["holdout"] = {"id": number, "exclusion_percentage": rng.choice([0, 10, 50, 100])}
    if rng.random() < 0.1:
        filters["feature_enrollment"] = True
    return {"key": rng.choice(["flag", "Flag_", "new-checkout-"]) + str(number), "filters": filters}


def random_person(rng, number, keys):
    properties = {}
    if rng.random() < 0.95:
        properties["plan"] = rng.choice(PLANS)
    if rng.random() < 0.95:
        properties["city"] = rng.choice(CITIES)
    if rng.random() < 0.95:
        properties["age"] = rng.choice([rng.randrange(90), str(rng.randrange(90)), 33.5])
    if rng.random() < 0.95:
        properties["mail"] = rng.choice(["a", "b"]) + str(rng.randrange(200)) + "@x.org"
    for key in keys:
        if rng.random() < 0.6:
            properties[f"$feature_enrollment/{key}"] = rng.choice([True, False, "true", "false"])
    return {"id": rng.choice([f"person-{number}", f"Ünïcode {number}", str(number)]), "properties": properties}


def call(method, url, body=None, key=None):
    headers = {"Content-Type": "application/json", "User-Agent": "compare"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def serve(binary, directory):
    workspace = {
        "organizations": [{"id": ORGANIZATION, "name": "Compare"}],
        "users": [{"id": 1, "email": "ada@example.com", "memberships": [{"organization": ORGANIZATION, "level": "owner"}]}],
        "projects": [{"id": "1", "organization": ORGANIZATION, "token": TOKEN, "timezone": "UTC"}],
        "keys": [{"label": "compare", "user": "ada@example.com", "scopes": ["*"], "projects": [], "value": KEY}],
    }
    file = Path(directory) / "workspace.json"
    file.write_text(json.dumps(workspace))
    data = Path(directory) / "data"
    server = subprocess.Popen([binary, "serve", "--data", data, "--port", "0", "--dynamodb-port", "0", "--workspace", file],
                              stdout=subprocess.DEVNULL)
    for _ in range(600):
        if server.poll() is not None:
            sys.exit("pennon serve has stopped")
        if (data / "server.json").exists():
            return server, json.loads((data / "server.json").read_text())["http"]
        time.sleep(0.1)
    sys.exit("pennon serve does not start")


def compare(url, options):
    from posthog import Posthog

    rng = random.Random(options.seed)
    flags = {}
    for number in range(options.flags):
        flag = random_flag(rng, number, sorted(flags))
        made = call("POST", f"{url}/api/projects/1/feature_flags/", flag, KEY)
        flags[made["id"]] = flag
    enrolled = [flag["key"] for flag in flags.values() if flag["filters"].get("feature_enrollment")]
    persons = [random_person(rng, number, enrolled) for number in range(options.persons)]
    sdk = Posthog(TOKEN, host=url, secret_key=KEY, enable_local_evaluation=False)
    sdk.load_feature_flags()
    pairs, decided, wrong = 0, 0, []
    for person in persons:
        body = {"token": TOKEN, "distinct_id": person["id"], "person_properties": person["properties"]}
        remote = call("POST", f"{url}/flags/?v=2", body)["flags"]
        local = sdk.get_all_flags(person["id"], person_properties=person["properties"], only_evaluate_locally=True)
        known = {}
        for flag in flags.values():
            record = remote[flag["key"]]
            value = record["variant"] or record["enabled"]
            expected = evaluate(flag, flags, person, known)
            pairs += 1
            if value != expected:
                wrong.append(f"{flag['key']} for {person['id']!r}: {value!r}, by the rules {expected!r}")
            # If a property is missing, the SDK skips the condition, and a later one may still decide.
            is_whole = named(flag, flags) <= {"distinct_id", *person["properties"]}
            if local and flag["key"] in local and is_whole:
                decided += 1
                if value != local[flag["key"]]:
                    wrong.append(f"{flag['key']} for {person['id']!r}: {value!r}, by the SDK {local[flag['key']]!r}")
    sdk.shutdown()
    return pairs, decided, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--flags", type=int, default=200)
    parser.add_argument("--persons", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        server, url = serve(options.binary, directory)
        try:
            pairs, decided, wrong = compare(url, options)
        finally:
            server.terminate()
            server.wait()
    print(f"{pairs} pairs, {decided} of them decided by the SDK too, {len(wrong)} differences")
    print("\n".join(wrong[:20]))
    return 1 if wrong or decided * 2 < pairs else 0


if __name__ == "__main__":
    sys.exit(main())
