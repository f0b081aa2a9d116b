#!/usr/bin/env python3
"""A power cut under load: what the disk had received by then is mounted and served, and every acknowledged write is there exactly once.

    power_loss.py PENNON [--times N] [--seed S]

The data directory is on a file system of its own. The server is stopped in the middle of its work, the device below the file system is
copied without a sync, and the copy is mounted, which replays its journal: what was only in the page cache is lost, as after a power cut.
"""

import json
import os
import signal
import uuid
from pathlib import Path

from disks import Disk, Unavailable, skip
from installation import Campaign, Installation, Server, StartFailed
from load import Ledger, Load, verify, wait_until

MEGABYTES = 192
IMPORT_EVENTS = 300
# A file that is written without a sync before each cut: a cut that does not lose it tests nothing.
UNSYNCED_BYTES = 50_000


def freeze(pid):
    """Stops a process, and waits until each of its threads has left the kernel, so that nothing of it is half written."""
    os.kill(pid, signal.SIGSTOP)

    def are_stopped():
        states = []
        for status in Path(f"/proc/{pid}/task").glob("*/stat"):
            try:
                states.append(status.read_text().rpartition(")")[2].split()[0])
            except OSError:
                continue
        return all(state in "TZX" for state in states)

    return wait_until(are_stopped, 10)


class PowerLoss:
    def __init__(self, campaign):
        self.campaign, self.ledger, self.starts = campaign, Ledger(campaign), []
        self.disk = Disk(campaign.directory / "disk-0", MEGABYTES).create()
        self.installation = Installation(campaign.binary, self.disk.place / "data").create()
        # The installation is complete on the disk before anything is cut.
        os.sync()

    def run(self):
        try:
            for self.campaign.round in range(1, self.campaign.times + 1):
                self.cut(self.campaign.random("round", self.campaign.round))
                server = self.started()
                verify(self.ledger, server, self.campaign.random("verify", self.campaign.round))
                status, output, errors = self.installation.run("check")
                self.campaign.expect(status == 0, f"pennon check: status {status}: {output}{errors}")
                server.kill()
        finally:
            self.disk.remove()

    def started(self):
        server = Server(self.installation).start()
        self.starts.append(server.ready_seconds)
        self.campaign.expect(server.health[0] == 200, f"/_health: {server.health}")
        return server

    def cut(self, random):
        """Writes, compacts and imports, and goes on with what the device has after a cut."""
        server = self.started()
        load = Load(server, self.ledger, f"load-{self.campaign.round}").begin()
        load.ended.wait(random.uniform(0.2, 1.0))
        command, uuids = None, []
        if random.random() < 0.5:
            command = self.installation.begin("compact")
        else:
            file, uuids = self.history(random)
            command = self.installation.begin("import", file, "--project", "1")
        load.ended.wait(random.uniform(0.05, 0.6))
        # Acknowledged before the cut, if it had ended by then.
        is_done = command.poll() == 0
        for process in (command, server.process):
            if process.poll() is None:
                self.campaign.expect(freeze(process.pid), "a process did not stop")
        unsynced = random.randbytes(UNSYNCED_BYTES)
        (self.disk.place / "unsynced").write_bytes(unsynced)
        other = self.disk.after_power_cut(self.campaign.directory / f"disk-{self.campaign.round}")
        command.kill()
        server.kill()
        command.communicate()
        load.end()
        for what, status, body in self.ledger.refusals:
            self.campaign.finding(f"{what} before the cut: status {status}: {body!r:.300}")
        self.ledger.refusals.clear()
        self.disk.remove()
        self.disk = other.mount()
        left = self.disk.place / "unsynced"
        self.campaign.expect(not left.exists() or left.read_bytes() != unsynced, "the cut lost nothing that was not synced: this machine cannot simulate one")
        left.unlink(missing_ok=True)
        self.installation = Installation(self.campaign.binary, self.disk.place / "data")
        if uuids:
            if not is_done:
                # The import is repeated; before that its events are there or not.
                self.installation.succeed("import", file, "--project", "1")
            self.ledger.events.update(uuids)

    def history(self, random):
        file = self.campaign.directory / "import.jsonl"
        uuids = [str(uuid.UUID(int=random.getrandbits(128), version=4)) for _ in range(IMPORT_EVENTS)]
        lines = [{"event": "imported", "distinct_id": f"person-{number % 60}", "uuid": it, "timestamp": f"2024-02-{1 + number % 28:02}T10:00:00Z", "properties": {}}
                 for number, it in enumerate(uuids)]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return file, uuids


def main():
    campaign = Campaign(__doc__, times=5)
    power = None
    try:
        power = PowerLoss(campaign)
        power.run()
    except Unavailable as error:
        skip(error)
    except (StartFailed, AssertionError) as error:
        campaign.finding(str(error))
    ledger = power.ledger
    campaign.finish(f"{campaign.times} power cuts, {ledger.acknowledged} acknowledged writes, {len(ledger.events)} events, {len(ledger.records)} records; "
                    f"ready after {max(power.starts, default=0):.2f} s at most")


if __name__ == "__main__":
    main()
