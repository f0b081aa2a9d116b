"""Shared code of the programs: the task on standard input, the result as the last line of standard output."""

import json
import sys
import time
import traceback

task = json.load(sys.stdin)
_slowest = 0.0


def measure(action):
    """Runs `action`, and records the longest duration."""
    global _slowest
    began = time.perf_counter()
    value = action()
    _slowest = max(_slowest, time.perf_counter() - began)
    return value


def parse_payload(payload):
    return json.loads(payload) if isinstance(payload, str) else payload


def evaluate_all(get_value, get_payload):
    """Evaluates every flag for every person."""
    results = []
    for person in task["persons"]:
        values = {key: measure(lambda key=key: get_value(key, person)) for key in task["flags"]}
        results.append({"values": values, "payload": parse_payload(measure(lambda: get_payload("layout", person)))})
    return results


def run(program):
    """Runs the program, which returns rounds of values."""
    rounds, errors = [], []
    try:
        rounds = program()
    except Exception:
        errors.append(traceback.format_exc())
    print(json.dumps({"rounds": rounds, "errors": errors, "slowest_ms": round(_slowest * 1000)}))
