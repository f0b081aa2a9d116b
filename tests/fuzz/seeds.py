#!/usr/bin/env python3
"""Writes the first inputs of all targets from the cases, events, stored files and exports that other tests have.

    tests/fuzz/seeds.py      writes corpus/TARGET/seed-NN; other inputs, which fuzzing has found, stay

Standard library only. Of many cases of a kind, those are taken that have names and values that the others lack.
"""

import base64
import gzip
import io
import json
import shutil
import sqlite3
import struct
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
IMPORTS = TESTS.parent / "cli/tests/process/import_files"
SEEDS_MAX, BYTES_MAX = 25, 4096


def load(path):
    return json.loads((TESTS / path).read_text(encoding="utf-8"))


def cases(name):
    whole = load(name)
    return whole["cases"] if isinstance(whole, dict) else whole


def text(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def features(value, path=()):
    """Paths of names, and texts, of a JSON value."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (*path[-1:], name)
            yield from features(inner, (*path, name))
    elif isinstance(value, list):
        for inner in value:
            yield from features(inner, path)
    else:
        yield (*path[-1:], repr(value)[:20])


def diverse(values, most=SEEDS_MAX):
    """The values with the most features that none before has."""
    left = [(value, set(features(value))) for value in values if len(text(value)) <= BYTES_MAX]
    taken, seen = [], set()
    while left and len(taken) < most:
        best = max(left, key=lambda pair: (len(pair[1] - seen), -len(text(pair[0]))))
        if not best[1] - seen:
            break
        left.remove(best)
        taken.append(best[0])
        seen |= best[1]
    return taken


def requests(endpoint_is):
    names = ["trends", "funnels", "paths", "retention", "stickiness", "lifecycle"]
    every = [case["request"] for name in names for case in cases(f"corpus/{name}.json")]
    return [request["body"] for request in every if endpoint_is(request.get("endpoint")) and request.get("body")]


def steps(name):
    """Requests of a case file."""
    return [step for case in cases(name) for step in case.get("steps", [])]


def bodies(name, part):
    found = [step["body"] for step in steps(name) if part in step.get("path", "") and isinstance(step.get("body"), dict)]
    return found


def within(value, name):
    """All values of the field `name`, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == name:
                yield inner
            yield from within(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from within(inner, name)


def stored():
    """Rows and files of earlier releases: items as JSON by table, and bytes of files by suffix."""
    items, files = [], {}
    for release in sorted(p for p in (TESTS / "formats").iterdir() if p.is_dir()):
        database = sqlite3.connect(f"file:{release / 'backup/dynamodb.sqlite'}?mode=ro&immutable=1", uri=True)
        for table in ("pennon-records", "pennon-blocks"):
            items += [(table, row[0]) for row in database.execute(f'SELECT item_json FROM "{table}" ORDER BY pk, sk')]
        for path in sorted((release / "backup/events").rglob("*")):
            if path.is_file():
                files.setdefault(path.name.split(".", 1)[1], []).append(path.read_bytes())
    return items, files


def dates():
    listed = []
    for case in cases("corpus/dates.json"):
        fields = [case.get("date_from") or case.get("input") or "", case.get("date_to") or "", case.get("timezone") or "",
                  case.get("interval") or "", case.get("compare_to") or ""]
        listed.append("\n".join(fields).encode())
    more = ["-1mStart\n-1dEnd\nAsia/Kathmandu\nweek\n-1m", "all\n2024-02-29T23:59:59.999999+14:00\nPacific/Apia\nmonth\n-1y",
            "9999-12-31T23:59:59-12:00\n0001-01-01\nAmerica/Sao_Paulo\nhour\n-9999y", "yStart\nqEnd\nEurope/Berlin\nminute\n-3d"]
    return [*dict.fromkeys(listed)][:20] + [it.encode() for it in more]


def operators():
    values = [[case["operator"], case.get("filter_value"), case.get("property_value")] for case in cases("corpus/operators.json")]
    return [text(value) for value in diverse(values, 40)]


def expressions():
    found = {it for name in ("trends", "funnels", "paths", "stickiness") for case in cases(f"corpus/{name}.json")
             for key in ("math_hogql", "pathsHogQLExpression", "paths_hogql_expression") for it in within(case["request"], key)
             if isinstance(it, str)}
    for case in cases("corpus/trends.json") + cases("corpus/funnels.json"):
        for value in within(case["request"], "properties"):
            found |= {it["key"] for it in value if isinstance(it, dict) and it.get("type") == "hogql"} if isinstance(value, list) else set()
    more = ["sum(properties.amount) / count()", "person.properties.email ilike '%@a.b' or not (properties.n in (1, 2.5, 'x'))",
            "if(event = 'a', toFloat(properties.p), null) > 3 ? properties.`$b c` : 'it\\'s'",
            "countIf(properties.a is not null) + avg(session.$session_duration) * -1", "match(properties.url, '^https?://[^/]+/')",
            "concat(toString(timestamp), '-', distinct_id)", "uniq(person_id) % 7", "dateDiff('day', timestamp, now())", "((((1))))"]
    return [it.encode() for it in [*sorted(found), *more]][:40]


def import_files(*names):
    contents = []
    for name in names:
        content = (IMPORTS / name).read_bytes()
        if len(content) > BYTES_MAX:
            # The first records only.
            records = json.loads(content) if content.lstrip().startswith(b"[") else None
            lines = [text(it) for it in records] if records else content.splitlines()
            content = b"\n".join(lines[:3])
        contents.append(b"\0" + content)
        contents += [bytes([4 * n + n % 4]) + line for n, line in enumerate(content.splitlines()[:4], 1)]
    return contents


CSV = b"event,distinct_id,timestamp,uuid,plan,n\na,d1,2024-01-01T00:00:00Z,,pro,1\nb,d2,1704067200,,\"x, \"\"y\"\"\",2.5\n"
LINES = b'{"event":"a","distinct_id":"d","timestamp":"2024-01-01T00:00:00Z","properties":{"k":[1,null]}}\n' \
        b'{"type":"person","distinct_ids":["d","e"],"properties":{"p":1}}\n{"type":"group","group_type":"company","group_key":"k","properties":{}}\n'


def compressed(content):
    return gzip.compress(content, mtime=0)


def own_imports():
    history = (TESTS / "formats/1/history.jsonl").read_bytes()
    return [b"\0" + it for it in (CSV, LINES, history[:BYTES_MAX], b"[" + LINES.splitlines()[0] + b"]", compressed(LINES),
                                  CSV.replace(b",", b";"), CSV.replace(b",", b"\t"), b"\xef\xbb\xbf" + LINES, b"PK\x03\x04", b"")]


def archives():
    """A small backup as tar, and one with an entry that does not belong into it."""
    files = {"dynamodb.sqlite": b"1", "events/project=1/events/a.sums": b"sums"}
    import hashlib
    listed = [{"path": path, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()} for path, content in files.items()]
    digest = hashlib.sha256("".join(f"{it['path']}\0{it['bytes']}\0{it['sha256']}\n" for it in listed).encode()).hexdigest()
    contents = {"format": 1, "release": "0.1.0", "taken_at": "2024-01-01T00:00:00Z", "payload_key": False, "files": listed, "digest": digest}
    made = []
    for more in ({}, {"events/../x": b"x"}):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for path, content in {"backup.json": text(contents), **files, **more}.items():
                header = tarfile.TarInfo(path)
                header.size = len(content)
                archive.addfile(header, io.BytesIO(content))
        made.append(out.getvalue())
    return [text(contents)], made


def sums_file(content):
    """The content of a checksum file, of the object that the target names, without the checksum at the end."""
    length = struct.unpack("<H", content[8:10])[0]
    return content[:8] + struct.pack("<H", 3) + b"a/b" + content[10 + length:-4]


def side_files(files):
    merges = b"\x02" + bytes(range(32)) + b"\x08" + bytes(range(32, 64)) + b"\x09"
    queued = b"\x01" + bytes(range(32)) + b"\x08\x01"
    lines = bytes(range(10)) + b"\x02\x00\x05\x03\x80\x01"
    entries = b"".join(struct.pack("<I", n * n * 7919 % 2**32) for n in range(90))
    return [*(b"\0" + sums_file(it) for it in files["sums"][:4]), *(b"\1" + it for it in files["blocks"][:1]),
            b"\2" + lines, b"\3" + entries, b"\3" + struct.pack("<4I", 0, 1, 1, 2**32 - 1),
            *(b"\4" + it for it in files["ids"][:1]), *(b"\5" + it for it in files["pairs"][:1]), b"\6" + merges, b"\6" + queued]


def block_content():
    """One event as the content of a block: names, uuid, time, distinct id, properties."""
    properties = bytes([6, 0, 1]) + b"v" + bytes([3, 1, 8]) + bytes([8, 0, 7, 1]) + b"k" + bytes([3, 2, 9, 9])
    return b"\x01\x01\x01a\x02\x01k\x01l" + bytes(16) + b"\x0e" + b"\x00" + b"\x01d" + bytes([len(properties)]) + properties


def blocks(items):
    found = [block_content()]
    for table, item in items:
        body = json.loads(item).get("b", {}).get("B") if table == "pennon-blocks" else None
        if body:
            found.append(base64.b64decode(body))
    return found


def captured():
    event = {"event": "a", "distinct_id": "d", "properties": {"token": "phc_1", "$set": {"p": 1}, "n": [1.5, None, {"k": "\u00fc"}]},
             "timestamp": "2024-01-01T00:00:00.123Z", "uuid": "0190a000-0000-7000-8000-000000000001", "$set_once": {"q": True}}
    batch = {"api_key": "phc_1", "batch": [event, {**event, "event": "$identify", "offset": 12.5}], "sent_at": "2024-01-01T00:00:01Z",
             "historical_migration": True}
    analytics = {"api_key": "phc_1", "created_at": "2024-01-01T00:00:00Z", "batch": [
        {**event, "session_id": "s", "window_id": "w", "options": {"process_person_profile": False, "cookieless_mode": True}}]}
    plain = [text(it) for it in (event, [event, event], batch, analytics)]
    sent = base64.b64decode(load("events/capture.json")["body"])
    encoded = base64.b64encode(plain[0])
    form = b"data=" + encoded.replace(b"+", b"%2B").replace(b"/", b"%2F").replace(b"=", b"%3D") + b"&compression=base64&token=t"
    return plain, [*plain, sent, compressed(plain[2]), encoded, form, b"data=" + plain[0].replace(b'"', b"%22"), base64.b64encode(compressed(plain[0]))]


def multipart():
    part = b"--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1--B\r\n--B\r\n" \
           b"Content-Disposition: form-data; filename=\"x.csv\"; name=\"csv\"\r\nContent-Type: text/csv\r\n\r\nann\r\nb\r\n--B--\r\n"
    return [b"multipart/form-data; boundary=B\n" + part, b"multipart/form-data; boundary=\"B\"\npre\r\n" + part + b"after",
            b"application/json; charset=utf-8\n{\"a\":[{\"b\":1}],\"csv\":\"x\"}", b"application/x-www-form-urlencoded\na=1&b=x+y%21&&c",
            b"text/plain\nx", b"multipart/form-data\nx"]


def headers():
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    rows = [["/api/projects/1/insights/?a=1&b=%C3%BC+x&limit=10&offset=20", trace, "key-1", "Bearer phx_1", "a.example.com", "localhost:8000",
             '{"name": "x"}'],
            ["/x?personal_api_key=k", "cc" + trace[2:] + "-x", "\u00e9", "Bearer\tk", "evil/../x", "[::1]:80", "personal_api_key=phx_1"],
            ["https://h/p?=&==&%zz", "00-" + "0" * 32 + "-" + "0" * 16 + "-00", "k" * 255, "bearer x", "", "", "{}"]]
    return ["\n".join(row).encode() for row in rows]


def row_keys():
    keys = ["PROJECT#7\nPROJECT", "PROJECT#7#COHORT\n00000000000000000001", "DUE\n2026-01-05T10:00:00.000000#MEMBERS#3#9#1",
            "DUE\n2026-01-05T10:00:00.000000#DASHBOARD#1#7", "DUE\n2026-01-05T10:00:00.000000#INSIGHTS#1#7",
            "PROJECT#7#SHARD#1\n00001700000000000000-00000003-0000abcd-01-00", "EVENTS\nPROJECT#00000000000000000007",
            "PROJECT#7#OVERRIDE\nMERGE#00000000000000000001", "PROJECT#7#MERGEQUEUE\n00000000000000000001-0000000000000001",
            "JOB#1\n0190a000-0000-7000-8000-000000000001", "\n1704067200000000_5f5e100_0190a00000007000800000000000000a",
            "project=7/events/0123-ab.parquet", "http://ch.example.com:8123/?database=x", "PROJECT#1#DASHBOARD\n00000000000000000005"]
    return [key.encode() for key in keys]


def triggers():
    record = {"eventSource": "aws:dynamodb", "eventName": "INSERT",
              "dynamodb": {"Keys": {"pk": {"S": "COMPACTION#7#MERGES"}, "sk": {"S": "WAKE#x"}}, "SequenceNumber": "1"}}
    return [text(it) for it in ({"Records": [record, {**record, "eventName": "MODIFY"}, None]}, {"source": "aws.events"}, {"Records": []})]


def clickhouse():
    def response(names, rows):
        return text({"meta": [{"name": name, "type": "String"} for name in names], "data": rows, "rows": len(rows)})
    days = ["2024-01-01", "2024-01-02", "2024-01-03"]
    trend = [[series, name, day, 1.5] for series, name in enumerate("ab") for day in days]
    return [b"\0" + response(["series", "name", "day", "value"], trend),
            b"\1" + response(["series", "name", "breakdown_value", "value_count", "day", "value"],
                             [[series, name, "x", "1", day, 2] for series, name in enumerate("ab") for day in days]),
            b"\2" + response(["series", "name", "value"], [[0, "a", 3], [1, "b", "4"]]),
            b"\3" + response(["step", "name", "count", "average_conversion_time", "median_conversion_time"],
                             [[0, "a", 5, None, None], [1, "b", 2, 3.5, 3]]),
            b"\5" + response([], []), b"\6{}"]


def workspace_files():
    example = load("formats/1/workspace.json")
    yaml = """organizations:
  - id: 0190a000-0000-7000-8000-000000000001
    name: Example
users:
  - id: 1
    email: owner@example.com
    memberships: [{organization: 0190a000-0000-7000-8000-000000000001, level: owner}]
projects:
  - {id: "1", organization: 0190a000-0000-7000-8000-000000000001, token: phc_1, timezone: Europe/Berlin, group_types: [company]}
actions:
  - {project: 1, id: 1, name: a, steps: [{event: a, url: /x, url_matching: contains}]}
cohorts:
  - {project: 1, id: 2, filters: {properties: {type: AND, values: []}}}
  - {project: 1, id: 3, is_static: true, distinct_ids: [d]}
dashboards:
  - {project: 1, id: 4, name: d, restriction_level: 37}
"""
    return [yaml.encode(), text(example), b"&a [*a]", b"a: &x [1]\nb: [*x, *x]\n", b"{}", b"--- !!binary aGk=\n"]


def changes():
    """A summary of the changes of two keys."""
    at = b"\x02" + (5).to_bytes(16, "little")
    return [b"\0", b"\x01\x01k\x01" + at + b"\x03\x02" + b"\0\0", b"\x02\x01k\x02" + at + b"\x01" + at + b"\x06\x01v\x01" + at + b"\x02" + b"\x01m\0\0\0"]


def versions_page():
    return [b'<?xml version="1.0" encoding="UTF-8"?><ListVersionsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><IsTruncated>true</IsTruncated>'
            b"<NextKeyMarker>k&amp;</NextKeyMarker><NextVersionIdMarker>v</NextVersionIdMarker><Version><Key>a/b</Key><VersionId>1</VersionId>"
            b"<IsLatest>false</IsLatest><Size>12</Size></Version><DeleteMarker><Key>c</Key></DeleteMarker></ListVersionsResult>"]


def flags():
    writes = diverse(bodies("cases/flags.json", "/feature_flags"))
    filters = [it for case in cases("cases/evaluation.json") for it in within(case.get("setup", {}), "filters") if isinstance(it, dict)]
    persons = [it for case in cases("cases/evaluation.json") for person in case.get("setup", {}).get("persons", []) for it in [person.get("properties")]]
    taken = diverse([it for it in filters if "groups" in it], 20)
    criteria = [it["properties"] for it in filters if isinstance(it.get("properties"), dict)]
    stored_flags = [{"flags": [it, taken[(n + 1) % len(taken)]], "cohorts": criteria[n:n + 2], "person": persons[n % len(persons)],
                     "body": {"condition": (it.get("groups") or [{}])[0]}} for n, it in enumerate(taken)]
    sent = diverse([step["body"] for step in steps("cases/evaluation.json") if isinstance(step.get("body"), dict)], 20)
    return [text(it) for it in writes], [text(it) for it in stored_flags], [text(it) for it in sent]


def lists():
    filters = [it for name in ("trends", "funnels") for case in cases(f"corpus/{name}.json") for it in within(case["request"], "properties")
               if it and isinstance(it, (list, dict))]
    return [text(it) for it in diverse(filters, 20)]


def jobs():
    nodes = diverse(requests(lambda endpoint: endpoint == "query"), 8)
    legacy = diverse(requests(lambda endpoint: endpoint in ("trend", "funnel")), 8)
    return [text({"form": "node", "question": it}) for it in nodes] + [
        text({"form": form, "question": it}) for it in legacy for form in ("filters", "funnel" if "FUNNEL" in str(it) else "trend")]


def seeds():
    items, files = stored()
    plain, encoded = captured()
    contents, tars = archives()
    writes, stored_flags, evaluations = flags()
    return {
        "dates": dates(),
        "timestamps": [it.encode() for it in ("2024-01-04T11:45:38.123456+02:00", "2024-01-04", "1704368738", "1704368738123", "Thu, 04 Jan 2024 11:45:38 +0000",
                                              "2024/01/04 11:45:38.5", "04-01-2024", "01/04/2024", "9999-12-31T23:59:59-23:59", "2016-12-31T23:59:60Z")],
        "regular_expressions": [it.encode() for it in (r"^\w{3,64}@example\.com$", "(?i)a|b+?\nAB", "[[:alpha:]\\d-]{2,}\nx1-", r"(?P<n>\bfoo\B)\x{41}", "a{1000}", "((a{9}){9}){9}",
                                                       r"[^\]\\a-z]*(?s:.)\pL", r"\Qa.b\E{", "2.3.9{0-9}{1}")],
        "versions": [it.encode() for it in ("1.2.3\n1.2.3-rc.1", "v3.08\n3.8.0+b", "2.0.0-rc.1+build\n1.x", "1.2\n1.2.*", "0.0.1-0\n0.0.1-a.00", "18446744073709551615\n1")],
        "operators": operators(),
        "flag_writes": writes, "flag_evaluation": stored_flags, "evaluation_requests": evaluations,
        "query_nodes": [text(it) for it in diverse(requests(lambda endpoint: endpoint == "query"), 40)],
        "query_filters": [text(it) for it in diverse(requests(lambda endpoint: endpoint != "query"), 40)],
        "stored_queries": jobs(), "list_filters": lists(),
        "formulas": [it.encode() for it in ("A + B", "a/b*100", "-(A - 2.5e3) ** -2 ** .5", "A % B % 3", "((((A))))", "A B", "1/0", "A$+B")],
        "sql_expressions": expressions(),
        "partial_results": [bytes([kind]) + bytes(12) for kind in range(9)],
        "clickhouse_rows": clickhouse(),
        "part_messages": [bytes([3, 0]), b"\x0aquery text" + bytes(40), bytes([1]) + bytes(30), bytes([2]) + bytes(30)],
        "sdk_bodies": [bytes([choice]) + it for choice, it in zip((0, 1, 2, 9, 66, 130, 2, 10, 74, 194), encoded)],
        "capture_bodies": [bytes([choice]) + it for choice, it in zip((0, 0, 0, 1, 1, 0, 96, 2, 2, 96), encoded)],
        "request_bodies": multipart(), "headers": headers(),
        "record_bodies": [text(it) for part in ("/insights", "/dashboards", "/cohorts", "/actions")
                          for it in diverse(bodies("cases/insights.json", part), 12)] or [b"{}"],
        "cohort_csv": [it.encode() for it in ("ann\nbob\r\n\n cat ", "\ufeffdistinct_id\nann", "name,E-mail\nA,\"a@b.c\"\"\"\nB", "Person .id\n7", "a,b\n1,2", "ann,,\nbob,1,2")],
        "row_keys": row_keys(),
        "items": [text(row) for item in load("formats/1/items.json") for row in item["rows"][:1]][:6] + [it.encode() for table, it in items if len(it) < 1500][:14],
        "triggers": triggers(), "blocks": blocks(items)[:6],
        "queued_blocks": [text({"project": 7, "id": "00001700000000000000-00000003-0000abcd-01", "block": base64.b64encode(it).decode()}) for it in blocks(items)[:2]],
        "side_files": side_files(files), "profile_changes": changes(),
        "properties": [text(it) for it in ({"a": 1, "b": [1.5, None, {"c": "\u00fc\n"}], "a2": 2**63, "t": True, "": -0.0}, None)] + [b'{"a":1,"a":"\\u0000"}'],
        "object_versions": versions_page(),
        "import_detected": own_imports()[:4] + [b"\0" + (IMPORTS / name).read_bytes()[:BYTES_MAX] for name in ("mixpanel.jsonl", "posthog_persons.jsonl")],
        "import_pennon": own_imports(),
        "import_posthog": import_files("posthog_events.jsonl", "posthog_persons.jsonl"),
        "import_mixpanel": import_files("mixpanel.jsonl", "mixpanel_profiles.json"),
        "import_amplitude": import_files("amplitude.json"),
        "import_segment": import_files("segment.json"),
        "import_parquet": files["ids.parquet"][:1] + files["groups.parquet"][:1] + [it for it in files["parquet"] if len(it) > 2000][:1],
        "profile_files": files["ids.parquet"][:1] + files["groups.parquet"][:1],
        "backup_contents": contents + [(TESTS / f"formats/{n}/backup/backup.json").read_bytes() for n in (1, 2)],
        "backup_archives": tars, "workspaces": workspace_files(),
    }


def main():
    for name, inputs in seeds().items():
        folder = HERE / "corpus" / name
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("seed-*"):
            old.unlink()
        for number, content in enumerate(dict.fromkeys(inputs)):
            (folder / f"seed-{number:02}").write_bytes(content)
    for folder in (HERE / "corpus").iterdir():
        if not any(folder.iterdir()):
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
