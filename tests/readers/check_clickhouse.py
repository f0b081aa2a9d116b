#!/usr/bin/env python3
"""Runs the SQL that `pennon query --engine clickhouse --print` writes in chdb, which is ClickHouse in a process, on the
files of installations, and compares every number with the engine's own result. Then it serves chdb as ClickHouse does and
compares whole results of `pennon query --url` and of `pennon serve` (served.py).

    check_clickhouse.py PENNON DEMO_EVENTS
"""

import json
import math
import sys
import tempfile
from pathlib import Path

import chdb

import queries
import served
from clickhouse_server import ClickhouseServer
from pennon import Installation


def run_sql(sql):
    """The rows of a statement, by column."""
    text = str(chdb.query(sql.rstrip().removesuffix(";"), "JSONEachRow"))
    return [json.loads(line) for line in text.splitlines() if line]


def listed(value):
    return tuple(value) if isinstance(value, list) else value


def number(value):
    return None if value is None else float(value)


def of_funnel(result):
    """By value and step: count, mean and median."""
    rows = [row for steps in result for row in steps] if result and isinstance(result[0], list) else result
    return {
        (listed(row.get("breakdown_value")), row["order"]):
            [row["count"], number(row["average_conversion_time"]), number(row["median_conversion_time"])]
        for row in rows
    }


def of_funnel_sql(rows):
    return {
        (listed(row.get("breakdown_value")), int(row["step"])):
            [int(row["count"]), number(row["average_conversion_time"]), number(row["median_conversion_time"])]
        for row in rows
    }


def of_trend(result):
    """By series, value and day: the number."""
    found = {}
    for row in result:
        key = (row["order"], listed(row.get("breakdown_value")))
        if "aggregated_value" in row:
            found[(*key, None)] = [number(row["aggregated_value"])]
        for day, value in zip(row["days"], row["data"]):
            found[(*key, day)] = [number(value)]
    return found


def of_trend_sql(rows):
    return {
        (int(row["series"]), listed(row.get("breakdown_value")), row.get("day")):
            [number(row["value"] if "value" in row else row["aggregated_value"])]
        for row in rows
    }


def of_stickiness(result):
    """By series and bar: the number."""
    return {(order, bar): [number(value)]
            for order, row in enumerate(result) for bar, value in zip(row["days"], row["data"])}


def of_stickiness_sql(rows):
    return {(int(row["series"]), int(row["intervals"])): [number(row["value"])] for row in rows}


FORMS = {
    "FunnelsQuery": (of_funnel, of_funnel_sql),
    "TrendsQuery": (of_trend, of_trend_sql),
    "StickinessQuery": (of_stickiness, of_stickiness_sql),
}


def same(left, right):
    return left == right or (left is not None and right is not None and math.isclose(left, right, rel_tol=1e-12, abs_tol=1e-9))


def compare(name, installation, node):
    result, sql = installation.result(node), installation.sql(node)
    of_result, of_sql = FORMS[node["kind"]]
    try:
        rows = run_sql(sql)
    except Exception as error:
        raise AssertionError(f"{name}: {str(error)[:3000]}\n{sql}") from error
    expected, given = of_result(result), of_sql(rows)
    if expected.keys() != given.keys():
        missing, more = sorted(map(str, expected.keys() - given.keys())), sorted(map(str, given.keys() - expected.keys()))
        raise AssertionError(f"{name}: without {missing[:5]}, but {more[:5]}\n{sql}")
    for key, numbers in expected.items():
        if not all(same(left, right) for left, right in zip(numbers, given[key])):
            raise AssertionError(f"{name} {key}: {given[key]} instead of {numbers}\n{sql}")
    return len(expected)


def merged(installation):
    """Persons imported after their events have other ids than in the files."""
    installation.load([{"person": {"distinct_ids": [f"user-{at}", f"user-{at + 1}"], "properties": {}}}
                       for at in range(0, 20, 2)])


def main():
    binary, demo = sys.argv[1:3]
    failed, compared, numbers = 0, 0, 0

    def fail(what):
        nonlocal failed
        failed += 1
        print(f"\n{what}", file=sys.stderr, flush=True)

    server = ClickhouseServer()

    def check(name, installation, node):
        nonlocal compared, numbers
        try:
            numbers += compare(name, installation, node)
            served.compare_whole(name, installation, node, server)
            compared += 1
        except AssertionError as error:
            fail(error)

    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        shop = Installation(binary, place / "shop")
        shop.run("import", demo, "--project", "1")
        for name, node in queries.DEMO.items():
            check(f"demo, {name}", shop, node)
        for seed, (zone, week) in enumerate([("UTC", 0), ("Europe/Berlin", 1), ("America/Santiago", 0)]):
            random = Installation(binary, place / f"random-{seed}", zone, week)
            # Several files, with columns of different types.
            for part in range(3):
                random.load(list(queries.history(10 * seed + part, events=(1500, 300, 8)[part])))
            if seed == 1:
                merged(random)
            for name, node in [*queries.TRENDS.items(), *queries.FUNNELS.items(), *queries.STICKINESS.items()]:
                check(f"history {seed}, {name}", random, node)
            if seed == 0:
                for what, node in queries.REFUSED.items():
                    error = random.refusal(node)
                    if what not in error or "ClickHouse" not in error:
                        fail(f"refused as {error!r}, where {what!r} should be named")
            if seed == 1:
                try:
                    served.check_command(random, queries.TRENDS["by plan"], server)
                except AssertionError as error:
                    fail(error)
        try:
            compared += served.check_serve(binary, place, server)
        except AssertionError as error:
            fail(error)
    print(f"{compared} queries have {numbers} equal numbers in ClickHouse and Pennon")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
