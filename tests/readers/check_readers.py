#!/usr/bin/env python3
"""DuckDB and Polars read the event files of an installation and get the same numbers as Pennon: events by name, persons by day, a
breakdown by a property, the sum of a number.

    check_readers.py PENNON
"""

import math
import sys
import tempfile
from pathlib import Path

import duckdb
import polars

import queries
from pennon import Installation

NAMES = ["a", "b", "c", "d", "e"]


def results(installation):
    """The four results of Pennon, without zeros."""
    event, trend = queries.event, queries.trend
    totals = installation.result(trend([event(name) for name in NAMES], display="ActionsTable"))
    daily = installation.result(trend([event("a", math="dau")]))[0]
    split = installation.result(trend([event("a")], display="ActionsTable", breakdown=queries.BY_PLAN))
    summed = installation.result(trend([event("a", math="sum", math_property="amount")], display="ActionsTable"))
    return {
        "names": {row["label"]: row["aggregated_value"] for row in totals},
        "people": {day: count for day, count in zip(daily["days"], daily["data"]) if count},
        "plans": {row["breakdown_value"]: row["aggregated_value"] for row in split},
        "sum": summed[0]["aggregated_value"],
    }


NULL = "$$_posthog_breakdown_null_$$"


def by_duckdb(files):
    reader = duckdb.connect()
    events = f"read_parquet({files!r}, union_by_name = true)"

    def rows(sql):
        return reader.sql(sql).fetchall()

    january = "timestamp < TIMESTAMPTZ '2024-02-01 00:00:00+00'"
    return {
        "names": dict(rows(f"SELECT event, count(*) FROM {events} WHERE {january} GROUP BY event")),
        "people": dict(rows(f"SELECT strftime(timestamp AT TIME ZONE 'UTC', '%Y-%m-%d') AS day, count(DISTINCT person) "
                            f"FROM {events} WHERE event = 'a' AND {january} GROUP BY day")),
        "plans": dict(rows(f"SELECT ifnull(nullif(\"p.plan\", ''), '{NULL}') AS plan, count(*) FROM {events} "
                           f"WHERE event = 'a' AND {january} GROUP BY plan")),
        # Most values are in the column; those that do not fit its type, here strings, are in the JSON column.
        "sum": rows(f"SELECT sum(coalesce(\"p.amount\"::DOUBLE, json_extract_string(properties, '$.amount')::DOUBLE)) "
                      f"FROM {events} WHERE event = 'a' AND {january}")[0][0],
    }


def by_polars(files):
    column = polars.col
    number = polars.coalesce(column("p.amount").cast(polars.Float64),
                             column("properties").str.json_path_match("$.amount").cast(polars.Float64))
    frames = [polars.scan_parquet(file, hive_partitioning=False) for file in files]
    frames = [
        frame.select("event", "person", day=column("timestamp").dt.strftime("%Y-%m-%d"), plan=column("p.plan"), amount=number)
        for frame in frames
    ]
    events = polars.concat(frames)
    first = events.filter(column("event") == "a")

    def counts(frame, key, what):
        return dict(frame.group_by(key).agg(what).collect().rows())

    plan = polars.when(column("plan") == "").then(None).otherwise(column("plan")).fill_null(NULL).alias("plan")
    return {
        "names": counts(events, "event", polars.len()),
        "people": counts(first, "day", column("person").n_unique()),
        "plans": counts(first.with_columns(plan), "plan", polars.len()),
        "sum": first.select(column("amount").sum()).collect().item(),
    }


def by_refused_sql(installation):
    """The example in the error for a SQL query runs as it is, in the directory that holds `pennon-data`."""
    refusal = installation.refusal({"kind": "HogQLQuery", "query": "select 1"})
    assert "docs/files.md" in refusal and "project=1/events/*.parquet" in refusal, refusal
    statement = "SELECT" + refusal.split("SELECT", 1)[1].rstrip()
    statement = statement.replace("pennon-data", str(installation.directory))
    return dict(duckdb.connect().sql(statement).fetchall())


def main():
    with tempfile.TemporaryDirectory() as directory:
        installation = Installation(sys.argv[1], Path(directory) / "readers")
        for part in range(2):
            installation.load(list(queries.history(100 + part, persons=400, events=5000)))
        expected, files = results(installation), installation.segments()
        for reader in (by_duckdb, by_polars):
            given = reader(files)
            for what, numbers in expected.items():
                is_same = math.isclose(numbers, given[what], rel_tol=1e-12) if what == "sum" else numbers == given[what]
                assert is_same, f"{reader.__name__}, {what}: {given[what]} instead of {numbers}"
        every = dict(duckdb.connect().sql(f"SELECT event, count(*) FROM read_parquet({files!r}, union_by_name = true) "
                                          "GROUP BY event").fetchall())
        given = by_refused_sql(installation)
        assert given == every and set(NAMES) <= set(given), f"the example of the error: {given} instead of {every}"
    print(f"DuckDB {duckdb.__version__} and Polars {polars.__version__} count {sum(expected['names'].values())} events as Pennon")


if __name__ == "__main__":
    main()
