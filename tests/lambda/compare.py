"""Compares two responses to one request, up to side and time.

Generated on each side, and so compared by form: instants of today, random ids. A random id of one side must stand for one
of the other throughout (`Ids`). Numbers, names, order and everything that was imported must be equal.
"""

import gzip
import json
import re

ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
INSTANT = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
# Sent by a server about its connection, and by no function.
OF_THE_CONNECTION = {"connection", "content-length", "date", "transfer-encoding"}


class Ids:
    """Maps names of one side to names of the other."""

    def __init__(self):
        self.there, self.back = {}, {}

    def same(self, here, there):
        return self.there.setdefault(here, there) == there and self.back.setdefault(there, here) == here


def differences(local, function, ids, today):
    """The differences between two responses `(status, headers, body)`."""
    found = []
    if local[0] != function[0]:
        found.append(f"status {local[0]} and {function[0]}")
    headers = [{name: text for name, text in response[1].items() if name not in OF_THE_CONNECTION} for response in (local, function)]
    found += [f"header {line}" for line in walk(*headers, ids, today)]
    bodies = [read(response) for response in (local, function)]
    return found + list(walk(*bodies, ids, today))


def read(response):
    """The body as a value; a string, or bytes, if it is no JSON."""
    _, headers, body = response
    if headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    try:
        return json.loads(body) if body else None
    except ValueError:
        return body.decode(errors="backslashreplace")


def walk(one, two, ids, today, path="$"):
    if isinstance(one, dict) and isinstance(two, dict):
        if list(one) != list(two) and path != "$":
            yield f"{path}: fields {list(one)} and {list(two)}"
        for name in one.keys() | two.keys():
            yield from walk(one.get(name, "(absent)"), two.get(name, "(absent)"), ids, today, f"{path}.{name}")
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for at, pair in enumerate(zip(one, two)):
            yield from walk(*pair, ids, today, f"{path}[{at}]")
    elif isinstance(one, str) and isinstance(two, str):
        by_chance = path.endswith(".short_id") and ids.same(one, two)
        if not by_chance and not same_text(one, two, ids, today):
            yield f"{path}: {one[:300]!r} and {two[:300]!r}"
    elif path.endswith(".last_used_at") and all(it is None or shape(it, today) == "(now)" for it in (one, two)):
        return  # each process caches a key for some seconds
    elif type(one) is not type(two) or one != two:
        yield f"{path}: {one!r:.300} and {two!r:.300}"


def same_text(one, two, ids, today):
    if one == two:
        return True
    if shape(one, today) != shape(two, today):
        return False
    return all(ids.same(a.lower(), b.lower()) for a, b in zip(ID.findall(one), ID.findall(two)))


def shape(text, today):
    """The text without ids and without instants of the days `today`."""
    text = ID.sub("(id)", text)
    return INSTANT.sub(lambda found: "(now)" if found.group(0)[:10] in today else found.group(0), text)
