"""One measurement: wrk keeps the connections busy, and the server's CPU time is read before and after."""

import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from processes import cpu_seconds, memory_mb

SCRIPT = Path(__file__).with_name("load.lua")


@dataclass
class Request:
    method: str
    path: str
    headers: dict
    body: str | None = None

    def as_sent(self, host):
        headers = {"Host": host, **self.headers}
        body = (self.body or "").encode()
        if self.body is not None:
            headers |= {"Content-Type": "application/json", "Content-Length": len(body)}
        lines = [f"{self.method} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass
class Result:
    requests: int
    failed: int
    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    memory_mb: float


def measure(server, requests, connections, seconds, stop_after=None):
    """Sends `requests` repeatedly for `seconds`, or in order until `stop_after` responses were received."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requests"
        sent = (request.as_sent(urlsplit(server.url).netloc) for request in requests)
        file.write_bytes(b"".join(b"%d\n" % len(data) + data for data in sent))
        environment = {**os.environ, "LOAD_FILE": str(file), "LOAD_STOP": str(stop_after or "")}
        command = ["wrk", "--threads", "1", "--connections", str(connections), "--timeout", "30s",
                   "--duration", f"{300 if stop_after else seconds}s", "--script", str(SCRIPT), server.url]
        before = cpu_seconds(server.pids)
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as wrk:
            if stop_after:  # wrk itself has only a duration option
                for line in wrk.stderr:
                    if line.startswith("enough"):
                        wrk.send_signal(signal.SIGINT)
                        break
            output, errors = wrk.communicate()
        after = cpu_seconds(server.pids)
    line = next((line for line in output.splitlines() if line.startswith("result ")), None)
    if line is None:
        raise SystemExit(f"wrk failed: {output} {errors}")
    done, microseconds, bad_status, broken, p50, p99 = map(float, line.split()[1:])
    return Result(int(done), int(bad_status + broken), done / microseconds * 1e6, p50 / 1000, p99 / 1000,
                  (after - before) / max(done, 1) * 1000, memory_mb(server.pids))
