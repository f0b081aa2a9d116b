"""The queries that all contenders run, and the comparison of results.

A result consists of plain values: funnels are [count of each step] with conversion seconds if a contender has them,
series are {day: number} or {value: {day: number}}."""

STEPS = ["viewed", "added_to_cart", "purchased"]
WINDOW_DAYS = 14
ALL = ("2026-01-01", "2026-03-01")  # days of a funnel, both included
MONTH = ("2026-01-20", "2026-02-18")  # days of a trend
LOOK_BACK = 7
TOP = 25

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
}
QUERIES = list(GOALS)


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
