"""File systems in images, for campaigns that need a disk of their own: ext4 on a loop device. Needs root and loop devices."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")


class Unavailable(Exception):
    """File systems cannot be made or mounted on this machine; its text is the reason."""


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def skip(error):
    """Ends a campaign that this machine cannot run. That is no finding, and is printed."""
    print(f"skipped: {error}; it needs root, mkfs.ext4 and loop devices", flush=True)
    sys.exit(0)


class Disk:
    """An image with ext4, mounted at `place` between `mount` and `unmount`.

    The image is in memory where that is possible: what the file system has handed to its device is in the file, and what it keeps in the
    page cache is not. On a disk the loop device writes past the page cache for the same reason.
    """

    def __init__(self, place, megabytes):
        self.place, self.device = Path(place), None
        # A file system of memory has no block device below.
        in_memory = SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > megabytes * 4 << 20
        self.image = (SHARED_MEMORY if in_memory else self.place.parent) / f"{self.place.parent.name}-{self.place.name}.img"
        self.direct = "off" if in_memory else "on"
        self.megabytes = megabytes

    def create(self):
        if os.geteuid() != 0 or not shutil.which("mkfs.ext4") or not shutil.which("losetup"):
            raise Unavailable("no root, mkfs.ext4 or losetup")
        with open(self.image, "wb") as image:
            image.truncate(self.megabytes << 20)
        run("mkfs.ext4", "-q", "-m", "0", self.image)
        return self.mount()

    def mount(self):
        self.place.mkdir(exist_ok=True)
        self.device = run("losetup", f"--direct-io={self.direct}", "--find", "--show", self.image)
        # The journal is committed by syncs, and otherwise only every five minutes.
        run("mount", "-t", "ext4", "-o", "commit=300,noatime", self.device, self.place)
        return self

    def unmount(self):
        if self.device:
            # Processes that were killed a moment ago may still close their files.
            for command in (("umount", self.place), ("umount", "-l", self.place)):
                if subprocess.run(list(map(str, command)), capture_output=True).returncode == 0:
                    break
            subprocess.run(["losetup", "-d", self.device], capture_output=True)
            self.device = None

    def remove(self):
        self.unmount()
        self.image.unlink(missing_ok=True)

    def after_power_cut(self, place):
        """Another disk, of what this one's device has received so far."""
        disk = Disk(place, self.megabytes)
        shutil.copyfile(self.image, disk.image)
        return disk
