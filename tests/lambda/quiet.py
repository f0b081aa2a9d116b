"""No work continues after a response: Lambda freezes the process there, and resumes it minutes later or never.

Each function runs without being frozen, its store behind a proxy that records the time of each call. After each response the
test waits until the process is idle. No call may have begun after the response, none may have been pending at it, and
the process may not have used CPU time. Each function has an unused key, because the first use is recorded.
"""

import hashlib
import json
import time
from pathlib import Path

import events
import gateways
from runtime import Function, worked
from scenario import steps
from store import RECORDS, Database, Proxy

# A process without work for so long is idle; the test waits at most PATIENCE.
SETTLED, PATIENCE = 0.03, 3.0
# Time to receive the acknowledgement and to poll the next event; enough for a debug build on a busy machine.
WORK_MAX = 0.05
# Duration of a write in the store.
WRITING = 0.03


def rests(process):
    """Whether no thread of `process` runs or waits for a processor."""
    for task in Path(f"/proc/{process.pid}/task").glob("*/stat"):
        try:
            if task.read_text().rsplit(") ", 1)[1][0] == "R":
                return False
        except OSError:
            continue
    return True


def settle(process):
    """Waits until the process is idle; returns its CPU time meanwhile."""
    first = last = worked(process)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        time.sleep(SETTLED)
        now = worked(process)
        if now == last and rests(process):
            break
        last = now
    return last - first


def check(binaries, environment, directory, known, keys):
    """Findings: work after a response."""
    failures, values = [], dict(known)
    all_steps = steps("quiet")
    names = list(dict.fromkeys(step.function for step in all_steps))
    proxies = {name: Proxy(environment["AWS_ENDPOINT_URL_DYNAMODB"], WRITING) for name in names}
    functions = {}
    try:
        for name in names:
            own = {**environment, "AWS_ENDPOINT_URL_DYNAMODB": proxies[name].url}
            functions[name] = Function(Path(binaries) / name, name, own, 1769, halts=False, directory=directory).start()
        for step in all_steps:
            values["key"] = keys[f"quiet_{step.function}"]
            function = functions[step.function]
            outcome = function.invoke(gateways.deployed(step.request(values, events.Request)))
            work = settle(function.process)
            where = f"quiet {step.function} {step.method} {step.path}"
            failures += [f"{where}: {call} runs on behind the response" for call in proxies[step.function].since(outcome.at)]
            if work > WORK_MAX:
                failures.append(f"{where}: {work * 1000:.0f} ms of work behind the response")
            status, _, body = events.response_of(outcome.value())
            if status != step.status:
                failures.append(f"{where}: {status} instead of {step.status}: {body[:200]!r}")
            elif step.save:
                for name, path in step.save.items():
                    values[name] = at(json.loads(body), path)
        failures += unnoted(environment, [keys[f"quiet_{name}"] for name in names if name not in ("capture", "reference")])
    finally:
        for function in functions.values():
            function.stop()
        for proxy in proxies.values():
            proxy.close()
    return failures


def unnoted(environment, used):
    """Verifies that the use of the key was recorded: an omitted write would pass the check too."""
    items = Database(environment["AWS_ENDPOINT_URL_DYNAMODB"], environment["AWS_ACCESS_KEY_ID"]).items(RECORDS)
    noted = {item["pk"]["S"] for item in items if item["pk"]["S"].startswith("KEY#") and int(item.get("n", {"N": 0})["N"])}
    return [f"quiet: the use of {key} is not noted" for key in used if f"KEY#sha256${hashlib.sha256(key.encode()).hexdigest()}" not in noted]


def at(body, path):
    for part in path.split("."):
        body = body[int(part)] if isinstance(body, list) else body[part]
    return body
