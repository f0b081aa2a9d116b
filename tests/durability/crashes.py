#!/usr/bin/env python3
"""Kills of the server under load, and of commands between two starts: what was acknowledged is there, exactly once.

    crashes.py PENNON [--times N] [--seed S]
"""

import json
import shutil
import subprocess
import uuid

from installation import PATIENCE_SECONDS, Campaign, Installation, Server, StartFailed, exported_events
from load import Ledger, Load, verify, wait_until

IMPORT_EVENTS = 400
# Text of an event in a round that reaches the size from which the server compacts by itself: 8 MiB.
LARGE_TEXT_BYTES = 60_000
# Every so many rounds one with such events, in an installation of its own: exports of it take long.
LARGE_ROUNDS = 15


class Crashes:
    def __init__(self, campaign, name="data"):
        self.campaign = campaign
        self.installation = Installation(campaign.binary, campaign.directory / name).create()
        self.ledger, self.starts, self.killed = Ledger(campaign), [], {}

    def run(self):
        actions = []
        for self.campaign.round in range(1, self.campaign.times + 1):
            random = self.campaign.random("round", self.campaign.round)
            if self.campaign.round % LARGE_ROUNDS == 0:
                self.kill_own_compaction(random)
                continue
            server = self.started()
            verify(self.ledger, server, random)
            self.check()
            self.load(server, random)
            if not actions:
                actions = [self.kill_import, self.kill_apply, self.kill_delete, self.kill_backup, self.kill_compact, None]
                random.shuffle(actions)
            if action := actions.pop():
                action(random)
        self.campaign.round += 1
        self.end()

    def end(self):
        server = self.started()
        verify(self.ledger, server, self.campaign.random("last"))
        self.check()
        self.campaign.expect(server.stop() == 0, "the last server did not stop with status 0")

    def kill_own_compaction(self, random):
        """Kills a server while it compacts by itself what it has received."""
        other = Crashes(self.campaign, "large")
        server = other.started()
        load = Load(server, other.ledger, f"large-{self.campaign.round}", LARGE_TEXT_BYTES).begin()
        was_seen = wait_until(other.segment_files, PATIENCE_SECONDS)
        self.campaign.expect(was_seen, "the server compacted nothing")
        load.ended.wait(random.random() * 0.05)
        server.kill()
        load.end()
        other.end()
        self.starts += other.starts
        other.installation.remove()

    def started(self):
        server = Server(self.installation).start()
        self.starts.append(server.ready_seconds)
        allowed = self.campaign.options.ready
        self.campaign.expect(server.ready_seconds <= allowed, f"ready after {server.ready_seconds:.2f} s, {allowed} s are allowed")
        self.campaign.expect(server.health[0] == 200, f"/_health: {server.health}")
        return server

    def check(self):
        status, output, errors = self.installation.run("check")
        self.campaign.expect(status == 0, f"pennon check: status {status}: {output}{errors}")

    def load(self, server, random):
        """Writes until the kill; a compaction beside the server is killed before it or with it."""
        load = Load(server, self.ledger, f"load-{self.campaign.round}").begin()
        load.ended.wait(random.uniform(0.02, 0.4))
        compaction = None
        if random.random() < 0.6:
            compaction = self.installation.begin("compact")
            load.ended.wait(random.uniform(0.0, 0.25))
        if compaction and random.random() < 0.3:
            compaction.kill()
            load.ended.wait(random.uniform(0.0, 0.05))
        server.kill()
        if compaction:
            # Without its server it repeats its requests for some seconds; it may also be done.
            compaction.kill()
            compaction.communicate()
        load.end()
        for what, status, body in self.ledger.refusals:
            self.campaign.finding(f"{what} before the kill: status {status}: {body!r:.300}")
        self.ledger.refusals.clear()

    def segment_files(self):
        return [name for name in self.installation.files("events") if name.endswith(".parquet")]

    def kill(self, installation, most, random, command, *arguments):
        """Runs a command and kills it within `most` seconds; whether it was killed before its end."""
        process = installation.begin(command, *arguments)
        try:
            output = process.communicate(timeout=random.uniform(0.005, most))
            self.campaign.expect(process.returncode == 0, f"pennon {command}: {output}")
            return False
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.killed[command] = self.killed.get(command, 0) + 1
            return True

    def completed(self, installation, command, *arguments):
        status, output, errors = installation.run(command, *arguments)
        self.campaign.expect(status == 0, f"pennon {command} after a kill: status {status}: {output}{errors}")
        return output

    def kill_import(self, random):
        """An import stores whole parts; the same command again adds the rest."""
        file = self.campaign.directory / "import.jsonl"
        uuids = [str(uuid.UUID(int=random.getrandbits(128), version=4)) for _ in range(IMPORT_EVENTS)]
        with open(file, "w") as lines:
            for number, it in enumerate(uuids):
                lines.write(json.dumps({"event": "imported", "distinct_id": f"person-{number % 60}", "uuid": it,
                                        "timestamp": f"2024-02-{1 + number % 28:02}T10:00:00Z", "properties": {"n": number}}) + "\n")
        arguments = ("import", file, "--project", "1")
        for _ in range(random.randint(1, 2)):
            if not self.kill(self.installation, 0.25, random, *arguments):
                break
        self.completed(self.installation, *arguments)
        self.ledger.events.update(uuids)

    def kill_apply(self, random):
        """A workspace file is applied completely by the next run, which then has nothing left to change."""
        file = self.campaign.directory / "more.json"
        keys = [{"label": f"key {number}", "user": "ada@example.com", "scopes": ["*"], "value": f"phx_durability_more_{self.campaign.round}_{number}"}
                for number in range(12)]
        file.write_text(json.dumps({"keys": keys}))
        self.kill(self.installation, 0.12, random, "apply", file)
        self.completed(self.installation, "apply", file)
        left = self.completed(self.installation, "apply", file, "--dry-run")
        self.campaign.expect("nothing to change" in left, f"pennon apply a second time: {left}")

    def kill_delete(self, random):
        """A person is erased completely or not at all, and stays erased; everything else stays."""
        person = f"person-{random.randrange(50)}"
        own = {it for it, copies in exported_events(self.installation).items() if copies[0]["distinct_id"] == person}
        self.kill(self.installation, 0.3, random, "delete", "--person", person, "--project", "1", "--yes")
        left = own & set(exported_events(self.installation))
        self.campaign.expect(len(left) in (0, len(own)), f"{len(left)} of {len(own)} events of {person} are left by a killed erasure")
        self.completed(self.installation, "delete", "--person", person, "--project", "1", "--yes")
        # The reads after the next start find what is left.
        self.ledger.events -= own
        self.ledger.missing |= own
        # Of an uncertain batch only the events of others can be there.
        self.ledger.uncertain = [self.without(person, it) for it in self.ledger.uncertain]
        self.ledger.uncertain = [it for it in self.ledger.uncertain if it[2]]

    @staticmethod
    def without(person, uncertain):
        path, body, uuids, merges = uncertain
        if "batch" in body:
            body = {**body, "batch": [event for event in body["batch"] if event["distinct_id"] != person]}
            return path, body, [event["uuid"] for event in body["batch"]], merges
        return path, body, [] if body["distinct_id"] == person else uuids, merges

    def kill_backup(self, random):
        """A killed backup or restore leaves nothing that counts as one, and the next to that place clears it."""
        place = self.campaign.directory / ("backup.tar" if random.random() < 0.5 else "backup")
        target = Installation(self.installation.binary, self.campaign.directory / "restored")
        if self.kill(self.installation, 0.2, random, "backup", "--out", place):
            self.campaign.expect(not place.exists() or self.is_complete(place), f"a killed backup left {place.name}")
        if not place.exists():
            self.completed(self.installation, "backup", "--out", place)
        if self.kill(target, 0.2, random, "restore", place):
            self.campaign.expect(not target.data.exists() or target.run("check")[0] == 0, "a killed restore left a directory that is not whole")
        if not target.data.exists():
            self.completed(target, "restore", place)
        before, after = exported_events(self.installation), exported_events(target)
        self.campaign.expect(before == after, f"a restored backup has {len(after)} events, and the installation {len(before)}")
        self.completed(target, "check")
        leftovers = [it.name for it in self.campaign.directory.iterdir() if ".unfinished" in it.name]
        self.campaign.expect(not leftovers, f"the next backup and restore did not clear {leftovers}")
        target.remove()
        shutil.rmtree(place) if place.is_dir() else place.unlink()

    def is_complete(self, place):
        probe = Installation(self.installation.binary, self.campaign.directory / "probe")
        status, _, _ = probe.run("restore", place)
        probe.remove()
        return status == 0

    def kill_compact(self, random):
        self.kill(self.installation, 0.3, random, "compact")


def main():
    campaign = Campaign(__doc__, times=20, ready=(2.0, "seconds within which a server must be ready"))
    crashes = Crashes(campaign)
    try:
        crashes.run()
    except (StartFailed, AssertionError) as error:
        campaign.finding(str(error))
    starts, ledger = sorted(crashes.starts), crashes.ledger
    commands = ", ".join(f"{count} {command}" for command, count in sorted(crashes.killed.items())) or "none"
    ready = f"ready after {starts[len(starts) // 2]:.2f} s in the median, {starts[-1]:.2f} s at most" if starts else "never ready"
    campaign.finish(f"{campaign.times} kills, {ledger.acknowledged} acknowledged writes, {len(ledger.events)} events, {len(ledger.records)} records; "
                    f"{ready}; killed commands: {commands}")


if __name__ == "__main__":
    main()
