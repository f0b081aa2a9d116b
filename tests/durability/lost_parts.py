#!/usr/bin/env python3
"""One part of an installation is removed, or replaced by an older copy: the start is refused, or what needs the part is an error, and no
sweep deletes what is left.

    lost_parts.py PENNON [--times N] [--seed S] [--worker WORKER]

All files are aged by 40 days, so that a sweep takes every file that no table lists for an orphan. The server itself sweeps orphans in one
of 500 minutes; so the function `worker`, which does it in one of eight runs, is run on the server's data.
"""

import collections
import hashlib
import json
import os
import shutil
import sys
import time
from pathlib import Path

from installation import DATABASE, LOG, MARK, PROJECT, Campaign, Server, StartFailed
from specimen import Specimen, copied, responses, succeed
from bit_flips import DAMAGE_WORDS, file_class, first_difference, is_documented, names_damage, replaced_segments, without_results

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lambda"))
from runtime import Function  # noqa: E402
from worker import SCHEDULE  # noqa: E402

AGE_SECONDS = 40 * 24 * 3600
# A sweep of orphans is missed with a probability of (7/8)^40, half a percent.
SWEEPS = 40
# Parts whose loss changes nothing that a response has to name, with the reason.
REPLACEABLE = {
    "lock": "it is empty, and only locked", "server.json": "the next start writes it",
    MARK: "a second witness of lost writes: without it the check is weaker (docs/exit.md)",
    "results": "a cache: a missing result is calculated again (docs/exit.md)",
    "links .pairs": "made of the ids of imported persons, which are read without it", "links .sums": "as above",
    "events .blocks": "names blocks that a compaction has already deleted",
}


def put(source, target, *names):
    """Replaces files or directories of `target` by those of `source`; what the source lacks is removed."""
    for name in names:
        path = target.data / name
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        if (source.data / name).is_dir():
            shutil.copytree(source.data / name, path)
        elif (source.data / name).exists():
            shutil.copy2(source.data / name, path)


def contents(installation):
    """The files of events by the digest of their content; results are a cache, and marks are replaced by newer ones."""
    found = collections.Counter()
    for name in installation.files("events"):
        if not name.startswith(("events/results/", "events/installation/")):
            found[hashlib.sha256((installation.data / name).read_bytes()).hexdigest(), name.rsplit(".", 1)[-1]] += 1
    return found


def age(installation):
    then = time.time() - AGE_SECONDS
    for path in installation.data.rglob("*"):
        os.utime(path, (then, then))


class LostParts:
    def __init__(self, campaign):
        self.campaign, self.outcomes = campaign, collections.Counter()
        specimen = Specimen(campaign.binary, campaign.directory)
        self.older = specimen.installation
        self.newer = self.continued()
        self.before = self.read(copied(self.newer, campaign.directory / "copy"))[0]
        self.parts = self.scenarios()

    def continued(self):
        """The installation some writes later, again killed."""
        newer = copied(self.older, self.campaign.directory / "newer")
        server = Server(newer).start()
        client = server.client()
        Specimen.capture(client, 1200, 10)
        newer.succeed("compact")
        Specimen.capture(client, 1600, 11)
        succeed(client.patch(f"{PROJECT}/feature_flags/3/", {"name": "changed later"}))
        succeed(client.post(f"{PROJECT}/feature_flags/", {"key": "flag-later"}))
        server.kill()
        return newer

    def scenarios(self):
        """(what, the function that does it to a copy)."""
        found = []

        def remove(name, *names):
            found.append((name, f"{name} removed", lambda copy, random: put(Nothing, copy, *(names or (name,)))))

        def replace(name, *names):
            found.append((name, f"older copy of {name}", lambda copy, random: put(self.older, copy, *(names or (name,)))))

        shared_memory = f"{DATABASE}-shm"
        remove("database and log", DATABASE, LOG, shared_memory)
        replace("database and log", DATABASE, LOG, shared_memory)
        for part in (DATABASE, LOG):
            remove(part, part, shared_memory)
            replace(part, part, shared_memory)
        replace("database, log and mark", DATABASE, LOG, MARK, shared_memory)
        for part in (MARK, "payload.key", "events", "events/project=1", "events/merges", "events/installation", "lock", "server.json"):
            remove(part)
            if part not in ("lock", "server.json", "payload.key"):
                replace(part)
        replaced = replaced_segments(self.newer)
        classes = collections.defaultdict(list)
        for name in self.newer.files("events"):
            if not any(segment in name for segment in replaced):
                classes[file_class(name)].append(name)
        for name, files in sorted(classes.items()):
            found.append((name, f"a file of {name} removed", lambda copy, random, files=files: (copy.data / random.choice(files)).unlink()))
        return found

    def read(self, installation, sweeps=False):
        """Responses of a server on the installation, and the contents before and after it."""
        server = Server(installation).start()
        try:
            if sweeps:
                self.sweep(server)
            found = responses(server, with_export=True)
        finally:
            server.kill()
        if any(word in server.log() for word in DAMAGE_WORDS):
            found = {read: (status, {**body, "log": "damaged"} if status == 500 and isinstance(body, dict) else body) for read, (status, body) in found.items()}
        return found, server.log()

    def sweep(self, server):
        worker = Path(self.campaign.options.worker or self.campaign.binary.parent / "worker")
        if not worker.exists():
            self.outcomes["sweeps by `pennon compact` alone, without a worker"] += 1
            server.installation.run("compact")
            return
        environment = json.loads(server.installation.succeed("env", "--json"))
        with Function(worker, "worker", environment, 1769, 60, log=self.campaign.directory / "worker.log", directory=self.campaign.directory) as function:
            for _ in range(SWEEPS):
                # A run that refuses, because tables and events do not fit, is what is expected of it.
                function.invoke(SCHEDULE)
        self.outcomes["sweeps by the worker"] += 1

    def run(self):
        for self.campaign.round in range(1, self.campaign.times + 1):
            name, what, damage = self.parts[(self.campaign.round - 1) % len(self.parts)]
            copy = copied(self.newer, self.campaign.directory / "copy")
            damage(copy, self.campaign.random("round", self.campaign.round))
            age(copy)
            self.check(name, what, copy)

    def check(self, name, what, copy):
        left, files = contents(copy), set(copy.files())
        try:
            after, log = self.read(copy, sweeps=True)
        except StartFailed as error:
            self.outcomes["start refused"] += 1
            text = str(error)
            self.campaign.expect("panicked" not in text and any(it in text for it in ("restore", "adopt", "put", "payload.key")), f"{what}: the start fails without a next step: {text!r:.500}")
            self.campaign.expect(name not in REPLACEABLE, f"{what}: the start is refused, although {REPLACEABLE.get(name)}: {text!r:.300}")
            gone = files - set(copy.files()) - {"server.json"}
            self.campaign.expect(not gone, f"{what}: a refused start removed {sorted(gone)[:4]}")
            self.compare_contents(what, left, copy)
            return
        self.compare_contents(what, left, copy)
        wrong = {read: it for read, it in after.items() if it != self.before[read] and not names_damage(*it)}
        wrong = {read: it for read, it in wrong.items() if not self.is_older_result(read, after) and not is_documented(name, read, self.before[read], it)}
        has_errors = any(names_damage(*it) for it in after.values())
        self.outcomes["started, other responses" if wrong else "started, errors" if has_errors else "started, all responses as before"] += 1
        for read, (status, body) in list(wrong.items())[:3]:
            self.campaign.finding(f"{what}: {read}: {status}, {first_difference(self.before[read][1], body)} ({len(wrong)} of {len(after)} reads); log: {log[-300:]!r}")

    def is_older_result(self, read, after):
        """Old result objects were swept, and a result that cannot be calculated again is the one that was stored."""
        if read.startswith("stored result"):
            status, body = after[read.replace("stored result", "query")]
            return status != 200 and names_damage(status, body)
        return read == "a dashboard" and without_results(after[read]) == without_results(self.before[read])

    def compare_contents(self, what, before, copy):
        lost = before - contents(copy)
        self.campaign.expect(not lost, f"{what}: {sum(lost.values())} files of events are gone: {sorted(kind for _, kind in lost)[:6]}")


class Nothing:
    """An installation without files."""

    data = Path("/nonexistent")


def main():
    campaign = Campaign(__doc__, times=40, worker=("", "the function `worker`; by default beside the program"))
    parts = LostParts(campaign)
    parts.run()
    for outcome, count in sorted(parts.outcomes.items()):
        print(f"  {count} {outcome}")
    campaign.finish(f"{campaign.times} lost parts, of {len(parts.parts)} kinds")


if __name__ == "__main__":
    main()
