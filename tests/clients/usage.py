"""Whether the calls of an SDK count as usage of a flag: 1,000 `$feature_flag_called` by posthog-node, then the flag's
`last_called_at` and its status, within a minute."""

import json
import subprocess
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import packages
from product import TOKEN, wait_for

CALLS = 1000
SECONDS = 60


def check_usage(product, flag_id, key, environment):
    """Prints one line; returns whether the calls are counted."""
    flag_path = f"/api/projects/1/feature_flags/{flag_id}/"
    before = product.call("GET", flag_path)["last_called_at"]
    if before is not None:
        print(f"FAILED usage: last_called_at is {before} before any call")
        return False
    began = datetime.now(timezone.utc)
    task = {"host": product.url, "token": TOKEN, "module": "posthog-node", "flag": key, "calls": CALLS,
            "packages": str(packages.install_npm("newest"))}
    program = Path(__file__).resolve().parent / "node" / "posthog_node_calls.js"
    done = subprocess.run(["node", program], input=json.dumps(task), capture_output=True, text=True, timeout=300, env=environment)
    if done.returncode != 0 or json.loads(done.stdout.splitlines()[-1])["errors"]:
        print(f"FAILED usage: {done.stdout[-1000:]}{done.stderr[-1000:]}")
        return False
    ended = time.monotonic()
    is_shown = wait_for(lambda: product.call("GET", flag_path)["last_called_at"] is not None, SECONDS, pause=1)
    waited = time.monotonic() - ended
    counted, status = product.count_events("$feature_flag_called"), product.call("GET", flag_path + "status/")
    called = product.call("GET", flag_path)["last_called_at"]
    is_recent = called is not None and datetime.fromisoformat(called) > began - timedelta(seconds=5)
    is_right = is_shown and is_recent and counted == CALLS and status["status"] == "active" and "Last called" in status["reason"]
    print(f"{'ok' if is_right else 'FAILED':6} usage: {counted} of {CALLS} calls counted, last_called_at {called} after {waited:.1f} s, {status}")
    return is_right
