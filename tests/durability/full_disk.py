#!/usr/bin/env python3
"""A full disk, and a file system that becomes read-only, under load: writes fail with the reason, reads go on, nothing that was
acknowledged is lost, and with room the server goes on without a restart.

    full_disk.py PENNON [--times N] [--seed S]

Every third file system becomes read-only, as ext4 makes it after an error of its device; it is mounted again, and the server restarted.
"""

import collections
import errno
import json
import os
import subprocess

from disks import Disk, Unavailable, skip
from installation import PROJECT, TOKEN, Campaign, Installation, Server, StartFailed, Unacknowledged
from load import COUNT_QUERY, Ledger, Load, verify, wait_until

MEGABYTES = 48
LARGE_TEXT_BYTES = 2_000
# Statuses that mean: try again when the cause is removed.
UNAVAILABLE = (503, 507)
REASONS = ("disk", "full", "space", "read-only", "readonly", "cannot be written", "not writable")
RECOVERY_SECONDS = 10
READS = {
    "flags": ("GET", f"{PROJECT}/feature_flags/?limit=10"), "insights": ("GET", f"{PROJECT}/insights/?basic=true&limit=10"),
    "dashboards": ("GET", f"{PROJECT}/dashboards/?limit=10"), "events": ("GET", f"{PROJECT}/events/?limit=10"),
    "persons": ("GET", f"{PROJECT}/persons/?limit=10"), "evaluation": ("POST", "/flags/?v=2", {"api_key": TOKEN, "distinct_id": "person-1"}),
    "definitions": ("GET", f"{PROJECT}/feature_flags/local_evaluation/"), "a query": ("POST", f"{PROJECT}/query/", COUNT_QUERY),
}


class FullDisk:
    def __init__(self, campaign):
        self.campaign, self.statuses, self.writes = campaign, collections.Counter(), 0

    def run(self):
        for self.campaign.round in range(1, self.campaign.times + 1):
            random = self.campaign.random("round", self.campaign.round)
            self.disk = Disk(self.campaign.directory / f"disk-{self.campaign.round}", MEGABYTES).create()
            try:
                self.one(random, self.campaign.round % 3 == 0)
            finally:
                self.disk.remove()

    def one(self, random, becomes_read_only):
        installation = Installation(self.campaign.binary, self.disk.place / "data").create()
        ledger = Ledger(self.campaign)
        server = Server(installation).start()
        try:
            Load(server, ledger, f"before-{self.campaign.round}").run(0.7)
            self.expect_no_refusals(ledger, "with room")
            during = Load(server, ledger, f"during-{self.campaign.round}", LARGE_TEXT_BYTES if random.random() < 0.5 else 0).begin()
            if becomes_read_only:
                self.make_read_only()
            else:
                self.fill(random)
            during.ended.wait(random.uniform(0.5, 1.5))
            self.check_health(server, becomes_read_only)
            self.check_reads(server)
            during.end()
            self.check_refusals(ledger)
            if becomes_read_only:
                server.kill()
                self.disk.unmount()
                self.disk.mount()
                server = Server(installation).start()
            else:
                self.filler.unlink()
                recovered = wait_until(lambda: server.client().get("/_health")[0] == 200, RECOVERY_SECONDS)
                self.campaign.expect(recovered, f"/_health {RECOVERY_SECONDS} s after there is room: {server.client().get('/_health')}")
            verify(ledger, server, random)
            Load(server, ledger, f"after-{self.campaign.round}").run(0.5)
            self.expect_no_refusals(ledger, "after there is room again")
            server.kill()
            server = Server(installation).start()
            verify(ledger, server, random)
            status, output, errors = installation.run("check")
            self.campaign.expect(status == 0, f"pennon check: status {status}: {output}{errors}")
            self.writes += ledger.acknowledged
        except Unacknowledged as error:
            self.campaign.finding(f"a request without response: {error}; the server: {server.process.poll()}, {server.log()[-500:]}")
        finally:
            server.kill()

    def fill(self, random):
        """Leaves less room than the smallest write needs, or a little."""
        self.filler = self.disk.place / "filler"
        with open(self.filler, "wb", buffering=0) as filler:
            for size in (1 << 20, 4096, 1):
                while True:
                    try:
                        filler.write(bytes(size))
                    except OSError as error:
                        if error.errno != errno.ENOSPC:
                            raise
                        break
            left = random.choice([0, 0, random.randrange(200_000)])
            filler.truncate(max(0, os.fstat(filler.fileno()).st_size - left))
            os.fsync(filler.fileno())

    def make_read_only(self):
        done = subprocess.run(["mount", "-o", "remount,abort", str(self.disk.place)], capture_output=True, text=True)
        probe = self.disk.place / "probe"
        try:
            probe.write_bytes(b"x" * 5000)
            with open(probe, "rb") as file:
                os.fsync(file.fileno())
        except OSError:
            return
        raise Unavailable(f"this system does not make ext4 read-only: {done.stderr}")

    def check_health(self, server, becomes_read_only):
        status, body = server.client().get("/_health")
        text = json.dumps(body)
        advice = "Make the directory writable" if becomes_read_only else "Free disk space"
        self.campaign.expect(status == 503 and advice in text, f"/_health: {status}: {text}")

    def check_reads(self, server):
        client = server.client()
        for name, request in READS.items():
            status, body = client.send(*request)
            self.campaign.expect(status == 200, f"{name} on a full disk: {status}: {body!r:.400}")
            is_list = status == 200 and isinstance(body, dict) and "count" in body
            self.campaign.expect(not is_list or body["count"] > 0, f"{name} on a full disk: an empty list")

    def check_refusals(self, ledger):
        """Every refused write is unavailable for the time being, and names the reason."""
        found = collections.defaultdict(list)
        for what, status, body in ledger.refusals:
            self.statuses[status] += 1
            detail = json.dumps(body)
            if status not in UNAVAILABLE or not any(word in detail.lower() for word in REASONS):
                found[status, detail[:300]].append(what)
        for (status, detail), whats in list(found.items())[:4]:
            self.campaign.finding(f"{len(whats)} refused writes, such as {whats[0]}, do not name the reason: {status}: {detail}")
        ledger.refusals.clear()

    def expect_no_refusals(self, ledger, when):
        for what, status, body in ledger.refusals[:3]:
            self.campaign.finding(f"{what} {when}: status {status}: {body!r:.300}")
        ledger.refusals.clear()


def main():
    campaign = Campaign(__doc__, times=3)
    full = FullDisk(campaign)
    try:
        full.run()
    except Unavailable as error:
        skip(error)
    except (StartFailed, AssertionError) as error:
        campaign.finding(str(error))
    refused = ", ".join(f"{count} with {status}" for status, count in sorted(full.statuses.items())) or "none"
    campaign.finish(f"{campaign.times} file systems, {full.writes} acknowledged writes, refused writes: {refused}")


if __name__ == "__main__":
    main()
