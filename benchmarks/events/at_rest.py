#!/usr/bin/env python3
"""Bytes at rest per event, Pennon's compacted files against ClickHouse tables of the same columns. See README.md.

    at_rest.py --pennon target/dist/pennon --data DIRECTORY [--project 1]"""

import argparse
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

GOAL = 1.5
EVERYTHING = {"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": None}], "interval": "month",
              "dateRange": {"date_from": "1990-01-01", "date_to": "2090-01-01"}}
# Sort orders of the table: the smallest one, which keeps the values of a session together; and the usual one of event tables
# for queries that read few of many event names.
ORDERS = {"person, time": "(person, timestamp)", "day, event, person": "(toDate(timestamp), event, person)"}
# Columns with the order of arrival. A uuid that was derived from a line contains it too, so a table can omit them.
ARRIVAL = {"seq_high": ("UInt64", "seq_high"), "seq_low": ("UInt64", "seq_low")}
# String columns with more distinct values than this are not LowCardinality, as ClickHouse recommends.
FEW_VALUES = 10_000


def live(binary, data, project):
    """The ids of the live segments: those in a statement over all events."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as query_file:
        json.dump(EVERYTHING, query_file)
        query_file.flush()
        command = [binary, "query", query_file.name, "--data", data, "--project", str(project), "--engine", "clickhouse", "--print"]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return sorted(set(re.findall(r"\d{20}-[0-9a-f]{16}", done.stdout)))


def columns(files):
    """The columns of events in ClickHouse: name, type, and expression over the file."""
    uuid = "reinterpretAsUUID(reverse(substring({0}, 1, 8)) || reverse(substring({0}, 9, 8)))"
    # A row without a uuid has its first bytes; the rest is the line number.
    whole = "ifNull(uuid, assumeNotNull(uuid_source) || unhex(leftPad(hex(assumeNotNull(seq_low)), 12, '0')))"
    found = {"event": ("LowCardinality(String)", "event"), "person": ("UUID", uuid.format("person")), "distinct_id": ("String", "distinct_id"),
             "timestamp": ("DateTime64(6, 'UTC')", "timestamp"), "uuid": ("UUID", uuid.format(whole)),
             "properties": ("Nullable(String)", "properties")}
    of_arrow = {"int64": "Nullable(Int64)", "double": "Nullable(Float64)", "bool": "Nullable(Bool)"}
    for file in files:
        opened = pq.ParquetFile(file)
        for field in opened.schema_arrow:
            if field.name.startswith("p.") and field.name not in found:
                kind = of_arrow.get(str(field.type))
                if kind is None:
                    values = len(opened.read_row_group(0, columns=[field.name]).column(0).unique())
                    kind = "LowCardinality(Nullable(String))" if values < FEW_VALUES else "Nullable(String)"
                found[field.name] = (kind, f"`{field.name}`")
    return found


def clickhouse(files, of, orders):
    """Number of rows, and bytes of a table with these files, merged to one part, for each of these orders."""
    from chdb import session

    work = tempfile.mkdtemp(prefix="pennon-at-rest")
    try:
        base = session.Session(work)
        base.query("CREATE DATABASE bench ENGINE = Atomic")
        types = ", ".join(f"`{name}` {kind}" for name, (kind, _) in of.items())
        found = []
        for order in orders:
            base.query(f"CREATE TABLE bench.events ({types}) ENGINE = MergeTree ORDER BY {order}")
            for file in files:
                there = set(pq.ParquetFile(file).schema_arrow.names)
                own = {name: how for name, (_, how) in of.items() if name in there}
                names = ", ".join(f"`{name}`" for name in own)
                base.query(f"INSERT INTO bench.events ({names}) SELECT {', '.join(own.values())} FROM file('{file}', Parquet)")
            base.query("OPTIMIZE TABLE bench.events FINAL")
            sizes = "SELECT sum(rows), sum(bytes_on_disk) FROM system.parts WHERE database = 'bench' AND active"
            rows, size = str(base.query(sizes, "CSV")).strip().split(",")
            found.append((int(rows), int(size)))
            base.query("DROP TABLE bench.events SYNC")
        return found
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pennon", required=True)
    parser.add_argument("--data", type=Path, required=True, help="an installation whose events have been compacted")
    parser.add_argument("--project", type=int, default=1)
    options = parser.parse_args()
    folder = options.data.resolve() / "events" / f"project={options.project}" / "events"
    ids = live(options.pennon, options.data, options.project)
    files = [folder / f"{name}.parquet" for name in ids]
    own = sum(file.stat().st_size for name in ids for file in folder.glob(f"{name}.*"))
    segments = sum(file.stat().st_size for file in files)
    of = columns(files)
    all_orders = list(ORDERS.values())
    with_arrival = clickhouse(files, of | ARRIVAL, all_orders)
    without = clickhouse(files, of, all_orders)
    rows = with_arrival[0][0]
    print(f"{rows:,} events, {own / rows:.1f} bytes each with all files, {segments / rows:.1f} without those beside the segments.\n")
    print("| ClickHouse's table, ordered by | columns | bytes an event | Pennon's share |\n|---|---|---|---|")
    for columns_of, found in (("the same", with_arrival), ("without the order of arrival", without)):
        for name, (_, theirs) in zip(ORDERS, found):
            verdict = ""
            if columns_of == "the same":
                verdict = f" (goal {GOAL}: {'reached' if own <= GOAL * theirs else '**missed**'})"
            print(f"| {name} | {columns_of} | {theirs / rows:.1f} | {own / theirs:.2f}{verdict} |")


if __name__ == "__main__":
    main()
