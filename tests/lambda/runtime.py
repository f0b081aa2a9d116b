"""Runs a function's binary as Lambda does: the Runtime API on a free port, one event at a time, and a process that is frozen
from its response until the next event.

Must stay true: the process inherits no environment variable of the caller; no thread of it runs while it is frozen; the
outcomes of an event (a response, an error that the function reports, the end of the process, a time-out) are
distinguished. Times are of the monotonic clock of this process.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

VERSION = "/2018-06-01"
# Lambda's size limit of a synchronous response, and its error above it.
RESPONSE_BYTES_MAX = 6_291_556
TOO_LARGE = b'{"errorMessage": "Response payload size exceeded maximum allowed payload size (6291556 bytes).",' \
            b' "errorType": "Function.ResponseSizeTooLarge"}'
ARN = "arn:aws:lambda:us-east-1:123456789012:function:"


class FunctionFailed(Exception):
    """The function did not start, ended, ran out of time, or reported an error."""


class Outcome:
    """The outcome of an event."""

    def __init__(self, kind, payload, seconds, at):
        self.kind, self.payload, self.seconds, self.at = kind, payload, seconds, at

    def value(self):
        if self.kind != "response":
            raise FunctionFailed(f"{self.kind}: {self.payload!r}")
        return json.loads(self.payload) if self.payload else None


class Function:
    """A process of `command`, between `start` and `stop`; also a context."""

    def __init__(self, command, name, environment=(), memory=512, timeout=29.0, halts=True, log=None, directory=None, clock=None):
        self.command = [command] if isinstance(command, (str, os.PathLike)) else list(command)
        self.name, self.memory, self.timeout, self.halts = name, memory, timeout, halts
        self.more, self.log, self.directory = dict(environment), log, directory
        # The wall clock of the process, if it is not this machine's.
        self.now = clock.now if clock else time.time
        self.process = self.first_poll_seconds = self.first_poll_work = self.ready_at = None
        self.changed = threading.Condition()
        self.next_event = self.polls = self.outcome = self.current = None
        self.init_error = None

    def environment(self, port):
        """The variables that Lambda sets; nothing is inherited."""
        return {
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{port}", "AWS_LAMBDA_FUNCTION_NAME": self.name,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(self.memory), "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand", "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{self.name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": "2026/01/01/[$LATEST]0", "AWS_LAMBDA_LOG_FORMAT": "JSON",
            "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local", "AWS_SESSION_TOKEN": "local", "_HANDLER": "bootstrap", "TZ": ":UTC",
            "LAMBDA_TASK_ROOT": "/var/task", "LAMBDA_RUNTIME_DIR": "/var/runtime", "LANG": "en_US.UTF-8",
            "PATH": "/usr/local/bin:/usr/bin:/bin", **self.more,
        }

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def start(self, patience=10.0):
        """Executes the binary and waits for its first poll, as long as Lambda's init phase may take."""
        assert self.process is None, "a function starts once"
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=serve_each, args=(self.listener, self._serve), daemon=True).start()
        environment = self.environment(self.listener.getsockname()[1])
        sink = open(self.log, "ab") if self.log else subprocess.DEVNULL
        self.polls, began = 0, time.monotonic()
        # Under the lock, which the first poll waits for: a process may poll before `Popen` returns.
        with self.changed:
            self.process = subprocess.Popen(self.command, env=environment, cwd=self.directory, stdin=subprocess.DEVNULL,
                                            stdout=sink, stderr=sink, start_new_session=True)
        if self.log:
            sink.close()
        threading.Thread(target=self._watch, daemon=True).start()
        with self.changed:
            done = self.changed.wait_for(lambda: self.polls or self.init_error or self.process.returncode is not None, patience)
        if not self.polls:
            self.stop()
            why = self.init_error or (f"ended with {ending(self.process.returncode)}" if done else f"no poll in {patience} s")
            raise FunctionFailed(f"{self.name} did not start: {why}")
        self.first_poll_seconds, self.first_poll_work = self.ready_at - began, worked(self.process)
        return self

    def stop(self):
        with self.changed:
            if self.process and self.process.returncode is None:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.changed.wait_for(lambda: self.process.returncode is not None)
        self.listener.close()

    def invoke(self, event):
        """Sends `event` and waits for its outcome. A process that times out is terminated, as by Lambda."""
        request_id = str(uuid.uuid4())
        with self.changed:
            if self.process.returncode is not None:
                raise FunctionFailed(f"{self.name} has ended with {ending(self.process.returncode)}")
            self.outcome, self.current = None, request_id
            began = time.monotonic()
            self.next_event = (request_id, json.dumps(event).encode(), int((self.now() + self.timeout) * 1000))
            self._signal(signal.SIGCONT)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.outcome or self.process.returncode is not None, self.timeout)
            outcome, self.current = self.outcome, None
        now = time.monotonic()
        if outcome:
            kind, payload, at = outcome
            return Outcome(kind, payload, at - began, at)
        if self.process.returncode is not None:
            return Outcome("ended", f"{self.name}: {ending(self.process.returncode)}", now - began, now)
        self.stop()
        return Outcome("timed out", f"{self.name}: Task timed out after {self.timeout:.2f} seconds", now - began, now)

    def _signal(self, number):
        if self.halts and self.process.returncode is None:
            os.killpg(self.process.pid, number)

    def _halt(self):
        """Returns when the process has stopped, or has ended."""
        if self.halts:
            self._signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _watch(self):
        """The only place that reaps the process, and only while it is not being frozen."""
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        with self.changed:
            self.process.wait()
            self.changed.notify_all()

    def _serve(self, connection):
        with connection, connection.makefile("rb") as reader:
            try:
                while (message := read_request(reader)) is not None:
                    if not self._handle(connection, *message):
                        return
            except OSError:
                return

    def _handle(self, connection, method, path, headers, body):
        at = time.monotonic()
        if (method, path) == ("GET", f"{VERSION}/runtime/invocation/next"):
            return self._next(connection, at)
        if (method, path) == ("POST", f"{VERSION}/runtime/init/error"):
            with self.changed:
                self.init_error = body.decode(errors="replace")
                self.changed.notify_all()
            return respond(connection, "202 Accepted", b'{"status":"OK"}')
        parts = path.removeprefix(f"{VERSION}/runtime/invocation/").split("/")
        if method != "POST" or len(parts) != 2 or parts[1] not in ("response", "error"):
            return respond(connection, "404 Not Found", b"{}")
        with self.changed:
            if parts[0] != self.current or self.outcome:
                return respond(connection, "400 Bad Request", b'{"errorType":"InvalidRequestID"}')
            self._halt()
            self.outcome = (parts[1], body, at) if len(body) <= RESPONSE_BYTES_MAX else ("error", TOO_LARGE, at)
            self.changed.notify_all()
        # What the frozen process reads when it is resumed.
        return respond(connection, "202 Accepted", b'{"status":"OK"}')

    def _next(self, connection, at):
        with self.changed:
            self.polls += 1
            self.ready_at = self.ready_at or at
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.next_event or self.process.returncode is not None)
            if not self.next_event:
                return False
            (request_id, event, deadline), self.next_event = self.next_event, None
        return respond(connection, "200 OK", event, {
            "Lambda-Runtime-Aws-Request-Id": request_id, "Lambda-Runtime-Deadline-Ms": deadline,
            "Lambda-Runtime-Invoked-Function-Arn": ARN + self.name,
            "Lambda-Runtime-Trace-Id": "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700;Parent=9a9197af755a6419;Sampled=0"})


def worked(process):
    """CPU seconds of the threads of `process` so far."""
    total = 0
    for task in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
        try:
            total += int(task.read_text().split()[0])
        except OSError:
            continue  # a thread that has just ended
    return total / 1e9


def ending(code):
    """How a process ended, in words."""
    return f"signal: {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def serve_each(listener, serve):
    """Serves every connection in its own thread, until the listener is closed."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


def read_request(reader):
    """`(method, path, headers, body)` of the next request; none at the end."""
    line = reader.readline()
    if not line:
        return None
    method, path, _ = line.decode("latin-1").split(" ", 2)
    headers = read_headers(reader)
    return method, path, headers, read_body(reader, headers)


def read_headers(reader):
    headers = {}
    while (line := reader.readline()) not in (b"\r\n", b"\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return headers


def read_body(reader, headers):
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return reader.read(int(headers.get("content-length", 0)))
    body = bytearray()
    while size := int(reader.readline().split(b";")[0], 16):
        body += reader.read(size)
        reader.readline()
    read_headers(reader)
    return bytes(body)


def respond(connection, status, body, headers=()):
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in dict(headers).items()]
    connection.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
    return True


if __name__ == "__main__":
    sys.exit(__doc__)
