"""Servers as processes: starting and stopping them, and their CPU time and memory, read from /proc.

The figures are those of its process and all its descendants, ended ones included: PostgreSQL has a process per
connection."""

import http.client
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def family(roots):
    """{process: CPU seconds} of `roots` and all their descendants."""
    children, seconds = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(entry.name)
        children.setdefault(int(fields[1]), []).append(pid)
        # user and system time, its own and that of the children it has reaped
        seconds[pid] = sum(map(int, fields[11:15])) / TICKS_A_SECOND
    found, left = {}, [pid for pid in roots if pid in seconds]
    while left:
        pid = left.pop()
        found[pid] = seconds[pid]
        left += children.get(pid, [])
    return found


def cpu_seconds(roots):
    return sum(family(roots).values())


def memory_mb(roots):
    """Proportional set size: shared memory counts once in the sum."""
    kilobytes = 0
    for pid in family(roots):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kilobytes / 1024


def send_request(url, method="GET", headers=None, body=None, timeout=60):
    """(status, headers, body) of one request on a connection of its own."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
    try:
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


class Process:
    """A started program, in a session of its own, its output in `log`."""

    def __init__(self, command, log, environment=None, directory=None):
        self.log = log
        self.began = time.perf_counter()
        with open(log, "ab") as output:
            self.popen = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=directory,
                env={**os.environ, **(environment or {})}, start_new_session=True)
        self.pid = self.popen.pid

    def wait_until(self, ready, patience=120):
        """Seconds from the start until `ready()` is first true, polled every few milliseconds."""
        while time.perf_counter() - self.began < patience and self.popen.poll() is None:
            try:
                if ready():
                    return time.perf_counter() - self.began
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.003)
        self.stop()
        raise SystemExit(f"{self.popen.args[0]} is not ready:\n{Path(self.log).read_text(errors='replace')[-2000:]}")

    def stop(self, how=signal.SIGTERM):
        if self.popen.poll() is not None:
            return
        self.popen.send_signal(how)
        try:
            self.popen.wait(20)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
