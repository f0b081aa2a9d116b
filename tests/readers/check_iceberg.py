#!/usr/bin/env python3
"""PyIceberg, DuckDB and Spark read the published tables of an installation and get the same numbers as Pennon: events by name,
persons by day, a funnel of two steps, the sum of a number that has several types; with merged persons, over files with field ids
and over files of an earlier release without.

    check_iceberg.py PENNON

Spark runs in local-cluster mode, over the files that PyIceberg plans. It needs Java 17.
"""

import logging
import os
import random
import sys
import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import pyspark
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession, types

import queries
from pennon import Installation

ON = {"PENNON_ICEBERG": "on"}
NAMES = ["a", "b", "c"]
# Not the names of the engines' functions, which differ.
JSON_TEXT = {"duckdb": "json_extract_string(properties, '$.{}')", "spark": "get_json_object(properties, '$.{}')"}

# The current person of each event: events have the id that was current when their file was written.
EVENTS = """
    SELECT coalesce(persons.current_person, events.person) AS actor, events.*
    FROM {events} AS events LEFT JOIN {persons} AS persons ON events.person = persons.person"""

STATEMENTS = {
    "names": "SELECT event, count(*) FROM e GROUP BY event",
    "people": "SELECT cast(cast(timestamp AS DATE) AS varchar(10)), count(DISTINCT actor) FROM e WHERE event = 'a' GROUP BY 1",
    "funnel": """SELECT 'b', count(DISTINCT a.actor) FROM e AS a JOIN e AS b ON a.actor = b.actor AND b.timestamp > a.timestamp
        AND b.timestamp <= a.timestamp + INTERVAL '3' DAY WHERE a.event = 'a' AND b.event = 'b'""",
    # Integers and fractions are different types, and a value of another type than most of its file is in `properties`.
    "sum": """SELECT 'a', sum(coalesce(cast(p_amount_long AS double), p_amount_double, cast({json} AS double)))
        FROM e WHERE event = 'a'""",
}


def history(seed, first, events, amounts):
    """Events of different times, so that their order is certain."""
    choice = random.Random(seed)
    for number in range(events):
        time = datetime(2024, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=(first + number) * 997 % (30 * 86400))
        yield {
            "event": choice.choice(NAMES), "distinct_id": f"user-{choice.randrange(60)}",
            "uuid": f"00000000-0000-4000-8000-{first + number:012d}", "timestamp": time.isoformat(),
            "properties": {"amount": choice.choice(amounts), "Plan": choice.choice(["free", "pro"]), "plan": number % 3},
        }


def merge(installation, first, last):
    installation.load([{"person": {"distinct_ids": [f"user-{at}", f"user-{at + 1}"], "properties": {"at": at}}}
                       for at in range(first, last, 2)])


def results(installation):
    event, trend = queries.event, queries.trend
    totals = installation.result(trend([event(name) for name in NAMES], display="ActionsTable"))
    daily = installation.result(trend([event("a", math="dau")]))[0]
    steps = installation.result(queries.funnel([event("a"), event("b")]))
    summed = installation.result(trend([event("a", math="sum", math_property="amount")], display="ActionsTable"))
    return {
        "names": {row["label"]: row["aggregated_value"] for row in totals},
        "people": {day: count for day, count in zip(daily["days"], daily["data"]) if count},
        "funnel": {"b": steps[1]["count"]},
        "sum": {"a": summed[0]["aggregated_value"]},
    }


def folder(installation, table):
    return installation.directory / "events" / "iceberg" / "project=1" / table


def static_table(installation, table):
    metadata = folder(installation, table) / "metadata"
    version = (metadata / "version-hint.text").read_text()
    return StaticTable.from_metadata(str(metadata / f"v{version}.metadata.json"))


def open_duckdb():
    reader = duckdb.connect()
    for name, package in (("avro", duckdb_extension_avro), ("iceberg", duckdb_extension_iceberg)):
        extension = Path(package.__file__).parent / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
        reader.execute(f"LOAD '{extension}'")
    reader.execute("SET TimeZone = 'UTC'")
    return reader


def by_duckdb(installation, statements):
    reader = open_duckdb()
    tables = {table: f"iceberg_scan('{folder(installation, table)}')" for table in ("events", "persons")}
    reader.execute(f"CREATE TEMP VIEW e AS {EVENTS.format(**tables)}")
    json = JSON_TEXT["duckdb"].format("amount")
    return {name: dict(reader.sql(sql.format(json=json)).fetchall()) for name, sql in statements.items()}


def by_pyiceberg(installation, names_only=False):
    """Counts by name, and persons by day, from Arrow batches."""
    persons = static_table(installation, "persons").scan().to_arrow()
    current = dict(zip(persons["person"].to_pylist(), persons["current_person"].to_pylist()))
    scan = static_table(installation, "events").scan(selected_fields=("event", "person", "timestamp"))
    names, days = {}, {}
    for row in scan.to_arrow_batch_reader().read_all().to_pylist():
        names[row["event"]] = names.get(row["event"], 0) + 1
        if row["event"] == "a":
            days.setdefault(row["timestamp"].strftime("%Y-%m-%d"), set()).add(current.get(row["person"], row["person"]))
    pruned = static_table(installation, "events").scan(row_filter="timestamp < '2000-01-01T00:00:00+00:00'")
    assert not list(pruned.plan_files()), "files without events of the time are planned"
    return {"names": names, "people": {day: len(people) for day, people in days.items()}}


SPARK_TYPES = {"string": types.StringType(), "long": types.LongType(), "double": types.DoubleType(), "boolean": types.BooleanType(),
               "fixed[16]": types.BinaryType(), "timestamptz": types.TimestampType()}


def open_spark():
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "4",
        "spark.sql.parquet.fieldId.read.enabled": "true",
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
    }
    builder = SparkSession.builder.master("local-cluster[2,1,512]").appName("check_iceberg")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def by_spark(spark, installation, statements):
    for name in ("events", "persons"):
        table = static_table(installation, name)
        fields = [types.StructField(field.name, SPARK_TYPES[str(field.field_type)], True, {"parquet.field.id": field.field_id})
                  for field in table.schema().fields]
        files = [task.file.file_path for task in table.scan().plan_files()]
        spark.read.schema(types.StructType(fields)).parquet(*files).createOrReplaceTempView(name)
    spark.sql(EVENTS.format(events="events", persons="persons")).createOrReplaceTempView("e")
    json = JSON_TEXT["spark"].format("amount")
    return {name: {row[0]: row[1] for row in spark.sql(sql.format(json=json)).collect()} for name, sql in statements.items()}


def compare(engine, expected, given):
    for name, numbers in given.items():
        own = expected[name]
        same = own.keys() == numbers.keys() and all(abs(numbers[key] - own[key]) < 1e-6 for key in own)
        assert same, f"{engine}, {name}: {numbers} instead of {own}"


def check_new(binary, place, spark):
    installation = Installation(binary, place / "new")
    installation.variables = ON
    # Three files, in which the number is an integer, a fraction, and sometimes a text.
    for part, amounts in enumerate(([1, 2, 3], [0.5, 1.5, 2], [*range(1, 8), *range(1, 8), "8"])):
        installation.load(list(history(part, part * 700, 700, amounts)))
    merge(installation, 0, 20)
    installation.load(list(history(9, 5000, 50, [1])))
    merge(installation, 20, 30)
    for step in ("imported", "compacted"):
        expected = results(installation)
        compare(f"DuckDB, {step}", expected, by_duckdb(installation, STATEMENTS))
        compare(f"PyIceberg, {step}", expected, by_pyiceberg(installation))
        compare(f"Spark, {step}", expected, by_spark(spark, installation, STATEMENTS))
        installation.run("compact")
    plans = {field.name for field in static_table(installation, "events").schema().fields if "plan" in field.name}
    assert len(plans) == 2 and "p_plan_long" in plans, plans
    installation.run("delete", "--project", "1", "--person", "user-0", "--yes")
    expected = results(installation)
    compare("DuckDB, erased", expected, by_duckdb(installation, STATEMENTS))
    return sum(expected["names"].values())


def check_old(binary, place):
    """Files of the first release have no field ids; the table has a name mapping."""
    data = place / "old"
    backup = Path(__file__).parents[1] / "formats" / "1" / "backup"
    installation = Installation.of(binary, data, ON)
    installation.run("restore", str(backup))
    # The first publication, before any file is written again.
    installation.run("import", str(empty_import(place)), "--project", "1")
    table = static_table(installation, "events")
    assert "schema.name-mapping.default" in table.properties, table.properties
    # Later visits wait in a block.
    week = {"date_from": "2024-01-01", "date_to": "2024-01-08"}
    daily = installation.result(queries.trend([queries.event("visit", math="dau")], dates=week))[0]
    expected = {day: count for day, count in zip(daily["days"], daily["data"]) if count}
    assert expected, "the fixture has visits in this week"
    people = {"people": STATEMENTS["people"].replace("'a'", "'visit'")}
    compare("DuckDB, an earlier release", {"people": expected}, by_duckdb(installation, people))
    rows = static_table(installation, "events").scan().to_arrow_batch_reader().read_all().num_rows
    counted = open_duckdb().sql(f"SELECT count(*) FROM iceberg_scan('{folder(installation, 'events')}')").fetchall()[0][0]
    assert rows == counted, (rows, counted)
    return rows


def empty_import(place):
    file = place / "group.jsonl"
    file.write_text('{"group": {"type": "company", "index": 0, "key": "acme", "properties": {}}}\n')
    return file


def main():
    # PyIceberg warns about the dictionaries of every file.
    logging.disable(logging.WARNING)
    spark = open_spark()
    try:
        with tempfile.TemporaryDirectory() as directory:
            new = check_new(sys.argv[1], Path(directory), spark)
            old = check_old(sys.argv[1], Path(directory))
    finally:
        spark.stop()
    print(f"PyIceberg, DuckDB {duckdb.__version__} and Spark {pyspark.__version__} count {new} events as Pennon, and {old} of an "
          "earlier release")


if __name__ == "__main__":
    main()
