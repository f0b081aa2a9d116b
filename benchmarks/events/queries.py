"""The queries that all contenders run, and the comparison of results.

A result consists of plain values: funnels are [count of each step] with conversion seconds if a contender has them,
series are {day: number} or {value: {day: number}}; the functions `..._of` make the others."""

import datetime

STEPS = ["viewed", "added_to_cart", "purchased"]
WINDOW_DAYS = 14
ALL = ("2026-01-01", "2026-03-01")  # days of a funnel, both included
MONTH = ("2026-01-20", "2026-02-18")  # days of a trend
LOOK_BACK = 7
TOP = 25
WEEKS = 12  # rows and columns of retention; the last weeks have no events
WEEKS_RANGE = ("2025-12-28", "2026-03-21")  # from a Sunday on
STATUSES = ["new", "returning", "resurrecting", "dormant"]
PATH_STEPS = 5
PATH_EDGES = 50
SESSION_GAP = 30 * 60 * 1_000_000  # microseconds

# Goal: ratio of the peer's CPU time to Pennon's, warm and cold; "" is a peer's only variant.
GOALS = {
    "funnel": {("ClickHouse", "windowFunnel, counts only"): (15, 8), ("ClickHouse", "array, same times"): (200, 100)},
    "funnel by browser": {("ClickHouse", "windowFunnel, counts only"): (10, 5)},
    "strict funnel": {("ClickHouse", "window"): (15, None)},
    "daily total": {("ClickHouse", ""): (15, 6), ("Polars", ""): (2, None)},
    "daily uniques": {("ClickHouse", ""): (15, 6), ("Polars", ""): (2, None)},
    "by url, top 25": {("ClickHouse", ""): (15, 6), ("Polars", ""): (2, None)},
    "filtered sum": {("ClickHouse", ""): (15, 6), ("Polars", ""): (2, None)},
    "rolling 7-day uniques": {("ClickHouse", ""): (15, 6), ("Polars", ""): (2, None)},
    "weekly retention": {("ClickHouse", "bit mask"): (15, None), ("ClickHouse", "retention()"): (15, None), ("Polars", ""): (3, None)},
    "daily lifecycle": {("ClickHouse", ""): (15, None), ("Polars", ""): (3, None)},
    "stickiness": {("ClickHouse", "uniqExact"): (15, None), ("ClickHouse", "bit mask"): (15, None), ("Polars", ""): (3, None)},
    "paths": {("ClickHouse", "arrays"): (15, None), ("ClickHouse", "arrays, in order"): (15, None), ("Polars", ""): (3, None)},
}
QUERIES = list(GOALS)


def days_of(days):
    """The days of a range."""
    first, last = map(datetime.date.fromisoformat, days)
    return [(first + datetime.timedelta(day)).isoformat() for day in range((last - first).days + 1)]


def weeks_of(numbers):
    """Retention in the common form, with a cell for each week and each distance to it, of {(week, distance): persons}."""
    return {str(week): [numbers.get((week, distance), 0) for distance in range(WEEKS)] for week in range(WEEKS)}


def statuses_of(numbers):
    """A lifecycle in the common form, of {(status, day): persons}."""
    return {status: {day: numbers.get((status, day), 0) for day in days_of(MONTH)} for status in STATUSES}


def bars_of(numbers):
    """Stickiness in the common form, of {days: persons}."""
    return [numbers.get(days, 0) for days in range(1, len(days_of(MONTH)) + 1)]


def edges_of(rows):
    """Paths in the common form, of [(number of the first step, its name, name of the second, passages, mean microseconds)]."""
    return {f"{number}_{source} {number + 1}_{target}": [count, micros / 1000] for number, source, target, count, micros in rows}


def same(one, other, path=""):
    """The differences of two results: counts must be equal, sums and seconds up to rounding. Only fields of both are
    compared, and of a breakdown the values in both."""
    if isinstance(one, dict) and isinstance(other, dict):
        shared = [key for key in one if key in other]
        if not shared and one and other:
            return [f"{path}: nothing in common"]
        return [line for key in shared for line in same(one[key], other[key], f"{path}.{key}")]
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return [f"{path}: {len(one)} and {len(other)} values"]
        return [line for index, pair in enumerate(zip(one, other)) for line in same(*pair, f"{path}.{index}")]
    if one is None or other is None or abs(one - other) <= 1e-6 * max(abs(one), abs(other)):
        return []
    return [f"{path}: {one} and {other}"]


def check(query_name, results):
    """Aborts the run if results differ. `results` are [(contender, result)]."""
    who, first = results[0]
    for other, result in results[1:]:
        # Some contenders omit days without persons.
        if wrong := same(first, result):
            raise SystemExit(f"{query_name}: {who} and {other} disagree: {'; '.join(wrong[:5])}")
