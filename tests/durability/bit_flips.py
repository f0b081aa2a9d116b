#!/usr/bin/env python3
"""One damaged place in an installation or a backup: every response is as before or an error, never another result.

    bit_flips.py PENNON [--times N] [--seed S] [--only CLASS]

A bit is flipped, a page of 4 KiB is filled with zeros, a file is truncated or removed, or a bit is flipped in the stored text of a row.
"""

import base64
import collections
import json
import re
import shutil
import sqlite3
import tempfile
from pathlib import Path

from installation import DATABASE, LOG, MARK, Campaign, Installation, Server, StartFailed
from specimen import Specimen, copied, responses

PAGE_BYTES = 4096
# Damage that no start and no response has to name, with the reason.
HARMLESS = {
    "lock": "it is empty, and only locked",
    "server.json": "the next start writes it",
    "dynamodb.sqlite-shm": "SQLite rebuilds it from the log",
    MARK: "a second witness of lost writes: an unreadable one makes the check weaker, and changes no data (docs/exit.md)",
    "results": "a cache: an unreadable result is calculated again (docs/exit.md), and a dashboard shows none until then",
    "links .pairs": "made of the ids of imported persons, which are read without it (shared/eventstore/README.md)",
    "links .sums": "as above",
    "events .blocks": "names blocks that a compaction has already deleted",
}
# Rows without a checksum (docs/files.md): counters, rows without a body, and what the embedded database keeps for itself. Their
# undetected damage is counted and printed, with the rows.
UNCHECKED = "rows without checksum"
DAMAGE_WORDS = ("damaged", "checksum", "pennon check", "cannot be read", "not readable")
DAMAGES = ("flip", "zeros", "truncate", "remove")


def file_class(name):
    """The class of a stored file, by its path in the data directory."""
    parts = name.split("/")
    if parts[0] != "events":
        return parts[0]
    if parts[1] == "installation":
        return "installation mark" if len(parts) > 3 else "installation id"
    if parts[1] in ("results", "merges"):
        return parts[1] if not name.endswith(".sums") else "merges.sums"
    return f"{parts[2]} {''.join(re.findall(r'[.][a-z]+', parts[3]))}"


def damage_file(random, path, damage):
    """Damages a file; a text that describes it, or None if nothing of it changes."""
    content = bytearray(path.read_bytes())
    if damage == "remove":
        path.unlink()
        return "removed"
    if not content:
        return None
    at = random.randrange(len(content))
    if damage == "flip":
        bit = random.randrange(8)
        content[at] ^= 1 << bit
        path.write_bytes(content)
        return f"bit {bit} of byte {at} of {len(content)} flipped"
    if damage == "truncate":
        path.write_bytes(content[:at])
        return f"truncated from {len(content)} to {at} bytes"
    first = at // PAGE_BYTES * PAGE_BYTES
    page = content[first:first + PAGE_BYTES]
    if not any(page):
        return None
    content[first:first + PAGE_BYTES] = bytes(len(page))
    path.write_bytes(content)
    return f"{len(page)} bytes from {first} on filled with zeros"


def rows_of(database):
    """(table, rowid, pk, sk, text) of each row of both tables."""
    connection = sqlite3.connect(database)
    rows = []
    for table in ("pennon-records", "pennon-blocks"):
        rows += [(table, *row) for row in connection.execute(f'SELECT rowid, pk, sk, item_json FROM "{table}"')]
    connection.close()
    return rows


def replaced_segments(installation):
    """Ids of the segments that others have replaced. Read in a copy, because SQLite removes the log of a database that it closes."""
    with tempfile.TemporaryDirectory() as directory:
        for name in (DATABASE, LOG):
            if (installation.data / name).exists():
                shutil.copy(installation.data / name, directory)
        return replaced_in(Path(directory) / DATABASE)


def replaced_in(database):
    bodies = [json.loads(text)["d"]["S"] for _, _, _, sk, text in rows_of(database) if sk.startswith("S:SEGMENT#")]
    return {segment for body in bodies for segment in json.loads(body)["replaces_segments"]}


def kind_of_row(pk, sk):
    """The keys without ids."""
    return re.sub(r"[0-9a-f-]{32,}|\d{6,}[^#]*", "*", re.sub(r"#\d+", "#*", f"{pk} {sk}"))


def damage_row(random, data, of_key):
    """Flips a bit in the text of a row, or in one of its keys, and it stays a text. Kinds of rows have the same chance, however many
    rows they have. Returns what was done, and whether the row has a checksum."""
    kinds = collections.defaultdict(list)
    for row in rows_of(data / DATABASE):
        kinds[kind_of_row(row[2], row[3])].append(row)
    table, rowid, pk, sk, text = random.choice(kinds[random.choice(sorted(kinds))])
    column = random.choice(("pk", "sk")) if of_key else "item_json"
    before = {"pk": pk, "sk": sk, "item_json": text}[column].encode()
    while True:
        content = bytearray(before)
        at, bit = random.randrange(len(content)), random.randrange(8)
        content[at] ^= 1 << bit
        try:
            damaged = content.decode()
            break
        except UnicodeDecodeError:
            continue
    connection = sqlite3.connect(data / DATABASE)
    connection.execute(f'UPDATE "{table}" SET {column} = ? WHERE rowid = ?', (damaged, rowid))
    connection.commit()
    connection.close()
    near = slice(max(0, at - 30), at + 30)
    return f"row {pk} {sk}: {column}: bit {bit} of byte {at} of {len(content)}, {before[near]!r} became {bytes(content[near])!r}", has_checksum(text)


def has_checksum(text):
    """Whether a row has the attribute of the checksum, or carries one in its bytes: blocks, and rows of the merge log."""
    item = json.loads(text)
    binary = [base64.b64decode(value["B"])[:3] for value in item.values() if "B" in value]
    return "c" in item or bool(binary)


class BitFlips:
    def __init__(self, campaign):
        self.campaign = campaign
        self.specimen = Specimen(campaign.binary, campaign.directory)
        self.before = self.read(copied(self.specimen.installation, campaign.directory / "copy"))
        wrong = {name: it for name, it in self.before.items() if it[0] != 200}
        assert not wrong, f"the undamaged installation: {wrong}"
        self.classes = self.classified()
        self.outcomes, self.unchecked = collections.Counter(), collections.Counter()

    def classified(self):
        classes = collections.defaultdict(list)
        replaced = replaced_segments(self.specimen.installation)
        for name in self.specimen.installation.files():
            # Files of replaced segments stay for ten minutes, and nothing reads them.
            if name.endswith(".blocks") or not any(segment in name for segment in replaced):
                classes[file_class(name)].append(name)
        classes = {**classes, "row": [], "row key": [], "backup directory": [], "backup file": []}
        only = self.campaign.options.only
        if only and only not in classes:
            raise SystemExit(f"--only takes one of {', '.join(sorted(classes))}")
        return {only: classes[only]} if only else classes

    @staticmethod
    def read(installation):
        server = Server(installation).start()
        try:
            found = responses(server, with_export=True)
        finally:
            server.kill()
        # The response to a damaged row names it in the log alone.
        if any(word in server.log() for word in DAMAGE_WORDS):
            found = {read: (status, {**body, "log": "damaged"} if status == 500 and isinstance(body, dict) else body) for read, (status, body) in found.items()}
        return found

    def run(self):
        # Each class in turn, in random order: thirty rounds damage every class about once.
        order = []
        for self.campaign.round in range(1, self.campaign.times + 1):
            random = self.campaign.random("round", self.campaign.round)
            if not order:
                order = sorted(self.classes)
                self.campaign.random("order", self.campaign.round).shuffle(order)
            name = order.pop()
            if name.startswith("backup"):
                self.damage_backup(random, name)
            else:
                self.damage_installation(random, name)

    def damage_installation(self, random, name):
        copy = copied(self.specimen.installation, self.campaign.directory / "copy")
        is_checked = True
        if name in ("row", "row key"):
            what, is_checked = damage_row(random, copy.data, name == "row key")
        else:
            file = random.choice(self.classes[name])
            what = damage_file(random, copy.data / file, random.choice(DAMAGES))
            if what is None:
                return
            what = f"{file}: {what}"
        try:
            after = self.read(copy)
        except StartFailed as error:
            self.compare_refusal(name, what, str(error))
            return
        self.compare(name, what, after, is_checked)
        self.compare_check(name, what, copy, after)

    def compare_refusal(self, name, what, text):
        self.outcomes[name, "start refused"] += 1
        is_named = any(word in text for word in ("pennon restore", "pennon adopt", "restore it", "damaged", "checksum", "payload.key"))
        self.campaign.expect(is_named and "panicked" not in text, f"{what}: the start fails without a next step: {text!r:.600}")
        self.campaign.expect(name not in HARMLESS or name == "lock", f"{what}: the start is refused, although {HARMLESS.get(name)}: {text!r:.300}")

    def compare(self, name, what, after, is_checked):
        changed = {read: it for read, it in after.items() if it != self.before[read]}
        wrong = {read: it for read, it in changed.items() if not names_damage(*it)}
        wrong = {read: it for read, it in wrong.items() if not is_documented(name, read, self.before[read], it)}
        self.outcomes[name, "as before" if not changed else "wrong" if wrong else "errors"] += 1
        # A damaged key is one of another row, or of none, which no checksum in a row can show.
        if wrong and (not is_checked or name == "row key"):
            self.unchecked[re.sub(r": (pk|sk|item_json): bit.*", "", what)] += 1
            return
        for read, (status, body) in list(wrong.items())[:3]:
            difference = first_difference(self.before[read][1], body) if status == 200 else f"{body!r:.200}"
            self.campaign.finding(f"{what}: {read}: {status}, {difference} ({len(wrong)} of {len(after)} reads)")

    def compare_check(self, name, what, copy, after):
        """`pennon check` finds what a read of events found, and damage of a file with checksums in any case."""
        status, output, errors = copy.run("check")
        has_sums = name.startswith(("events .", "persons .", "groups .", "merges"))
        if has_sums and name not in HARMLESS:
            self.campaign.expect(status != 0, f"{what}: pennon check finds nothing: {output}")
        found = [read for read, (code, _) in after.items() if code == 503]
        self.campaign.expect(not found or status != 0 or name in ("row", "row key", DATABASE, LOG), f"{what}: {found} fail, and pennon check finds nothing: {output}{errors}")
        if status:
            self.outcomes[name, "found by check"] += 1

    def damage_backup(self, random, name):
        """A restore refuses a damaged backup, or gives the same installation."""
        source = self.specimen.backups[name == "backup file"]
        place = self.campaign.directory / f"damaged-{source.name}"
        shutil.rmtree(place, ignore_errors=True)
        place.unlink(missing_ok=True) if not place.is_dir() else None
        if source.is_dir():
            shutil.copytree(source, place)
            files = sorted(path for path in place.rglob("*") if path.is_file())
        else:
            shutil.copy(source, place)
            files = [place]
        file = random.choice(files)
        what = damage_file(random, file, random.choice(DAMAGES if source.is_dir() else DAMAGES[:3]))
        if what is None:
            return
        what = f"{file.relative_to(self.campaign.directory)}: {what}"
        target = Installation(self.campaign.binary, self.campaign.directory / "restored")
        target.remove()
        status, output, errors = target.run("restore", place)
        if status:
            self.outcomes[name, "restore refused"] += 1
            self.campaign.expect(not target.data.exists(), f"{what}: the refused restore left {target.data.name}")
            self.campaign.expect("panicked" not in errors and len(errors) > 20, f"{what}: {errors}")
            return
        self.compare(name, what, self.read(target), True)


def names_damage(status, body):
    """Whether a response is an error that names its reason. Flags that could not be evaluated are marked in a response of status 200."""
    if status == 200:
        return isinstance(body, dict) and body.get("errorsWhileComputingFlags") is True
    text = json.dumps(body)
    return status is not None and status >= 500 and any(word in text for word in DAMAGE_WORDS)


def is_documented(name, read, before, after):
    """Whether another response is what the documentation describes for the loss of this class."""
    if name == "payload.key":
        # docs/exit.md: a new key is generated, and payloads stay encrypted.
        return read in ("flags", "a secret payload", "definitions")
    return name == "results" and without_results(before) == without_results(after)


def without_results(value):
    """The value with empty stored results of insights."""
    if isinstance(value, dict):
        own = ("result", "hasMore", "timezone", "hogql") if "result" in value else ()
        return {key: without_results(it) for key, it in value.items() if key not in own}
    return [without_results(it) for it in value] if isinstance(value, (list, tuple)) else value


def first_difference(before, after, path=""):
    """Where two bodies differ first, in words."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(it for it in after if it not in before)]:
            if before.get(key) != after.get(key):
                return first_difference(before.get(key), after.get(key), f"{path}.{key}")
    if isinstance(before, list) and isinstance(after, list):
        for number, (one, other) in enumerate(zip(before, after)):
            if one != other:
                return first_difference(one, other, f"{path}[{number}]")
        return f"{path} has {len(after)} entries instead of {len(before)}"
    return f"{path or 'the body'} is {after!r:.300} instead of {before!r:.150}"



def main():
    campaign = Campaign(__doc__, times=30, only=("", "damages this class alone"))
    flips = BitFlips(campaign)
    flips.run()
    for (name, outcome), count in sorted(flips.outcomes.items()):
        print(f"  {name}: {count} {outcome}")
    for row, count in sorted(flips.unchecked.items()):
        print(f"  {UNCHECKED}: other responses after {count} flips in {row}")
    campaign.finish(f"{campaign.times} damaged places in {len(flips.classes)} classes")


if __name__ == "__main__":
    main()
