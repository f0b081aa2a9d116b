#!/usr/bin/env python3
"""The peers, each in a process of its own: loads the events, runs every query several times, prints a line of JSON for each.

    peers.py clickhouse|duckdb|polars --data events.parquet --work DIR --repeat 5"""

import argparse
import datetime
import json
import resource
import shutil
import time
from pathlib import Path

import periods
from queries import ALL, LOOK_BACK, MONTH, QUERIES, STEPS, TOP, WINDOW_DAYS

WINDOW = WINDOW_DAYS * 86_400_000_000
LIST = ", ".join(f"'{step}'" for step in STEPS)


def after(day):
    return (datetime.date.fromisoformat(day) + datetime.timedelta(1)).isoformat()


def before(day, days):
    return (datetime.date.fromisoformat(day) - datetime.timedelta(days)).isoformat()


def days_before(days, number):
    """A range that starts so many days earlier."""
    return (before(days[0], number), days[1])


def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def by_day(rows):
    return {str(day): number for day, number in rows}


def by_value(rows):
    result = {}
    for value, day, number in rows:
        result.setdefault(value, {})[str(day)] = number
    return result


def funnel(rows):
    row = [None if number is None else float(number) for number in rows[0]]
    return {"counts": row[:3]} | ({"seconds": row[3:]} if len(row) > 3 else {})


def funnels(rows):
    return {row[0]: {"counts": [float(number) for number in row[1:4]]} for row in rows}


class ClickHouse:
    """chdb: ClickHouse in the process, on a table in the best order for these queries: by person and time."""

    def __init__(self, data, work):
        from chdb import session

        shutil.rmtree(work / "clickhouse", ignore_errors=True)
        self.session = session.Session(str(work / "clickhouse"))
        self.session.query("CREATE DATABASE bench ENGINE = Atomic")
        self.session.query("""CREATE TABLE bench.events (event LowCardinality(String), distinct_id String, person_id UUID,
            timestamp DateTime64(6, 'UTC'), browser LowCardinality(String), current_url LowCardinality(String),
            plan LowCardinality(String), amount Nullable(Float64), country LowCardinality(String), session_id String)
            ENGINE = MergeTree ORDER BY (person_id, timestamp)""")
        self.session.query(f"INSERT INTO bench.events SELECT * REPLACE (toUUID(person_id) AS person_id) FROM file('{data}', Parquet)")
        self.session.query("OPTIMIZE TABLE bench.events FINAL")
        self.version = self.rows("SELECT version()")[0][0]
        self.bytes = int(self.rows("SELECT sum(data_compressed_bytes) FROM system.columns WHERE database = 'bench'")[0][0])

    def rows(self, sql):
        settings = "session_timezone = 'UTC', output_format_json_quote_64bit_integers = 0"
        result = self.session.query(f"{sql}{', ' if ' SETTINGS ' in sql else ' SETTINGS '}{settings}", "JSONCompactEachRow")
        text = result.data() if hasattr(result, "data") else str(result)
        return [json.loads(line) for line in text.splitlines() if line.strip()]

    def variants(self, query_name):
        def range_of(days):
            return f"timestamp >= '{days[0]} 00:00:00' AND timestamp < '{after(days[1])} 00:00:00'"

        if variants := periods.clickhouse(range_of, days_before).get(query_name):
            return variants
        steps, micros = f"event IN ({LIST}) AND {range_of(ALL)}", "toUnixTimestamp64Micro(timestamp)"
        conditions = ", ".join(f"event = '{step}'" for step in STEPS)
        level = f"windowFunnel({WINDOW})(toUInt64({micros}), {conditions})"
        reached = "countIf(depth >= 1) AS first, countIf(depth >= 2), countIf(depth >= 3)"
        times = ("avgIf(hop1, depth >= 2), quantileExactInclusiveIf(0.5)(hop1, depth >= 2), avgIf(hop2, depth >= 3), "
                 "quantileExactInclusiveIf(0.5)(hop2, depth >= 3)")
        day = "toDate(timestamp) AS day"
        viewed = f"FROM bench.events WHERE event = '{STEPS[0]}' AND {range_of(MONTH)} GROUP BY day ORDER BY day"
        if query_name == "funnel":
            # The longest path, and of these the first: with the same times as the product.
            state = (f"arrayFold((now, one) -> multiIf(now.1 = 3, now, "
                     f"one.2 = 1, (greatest(now.1, toUInt8(1)), now.2, now.3, now.4, one.1, now.6, now.7), "
                     f"one.2 = 2 AND now.5 > 0 AND one.1 - now.5 <= {WINDOW} AND now.6 != now.5, "
                     f"if(now.1 < 2, (toUInt8(2), now.5, one.1, toInt64(0), now.5, now.5, one.1), "
                     f"(now.1, now.2, now.3, now.4, now.5, now.5, one.1)), "
                     f"one.2 = 3 AND now.6 > 0 AND one.1 - now.6 <= {WINDOW}, (toUInt8(3), now.6, now.7, one.1, now.5, now.6, now.7), "
                     f"now), arraySort(groupArray(({micros}, toUInt8(indexOf([{LIST}], event))))), "
                     f"(toUInt8(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0)))")
            path = f"SELECT {state} AS path FROM bench.events WHERE {steps} GROUP BY person_id"
            hops = f"SELECT path.1 AS depth, (path.3 - path.2) / 1e6 AS hop1, (path.4 - path.3) / 1e6 AS hop2 FROM ({path})"
            counted = f"SELECT {reached} FROM (SELECT {level} AS depth FROM bench.events WHERE {steps} GROUP BY person_id)"
            return {"windowFunnel, counts only": (counted, funnel), "array, same times": (f"SELECT {reached}, {times} FROM ({hops})", funnel)}
        if query_name == "funnel by browser":
            one = (f"SELECT {level} AS depth, argMin(browser, timestamp) AS value FROM bench.events WHERE {steps} GROUP BY person_id")
            return {"windowFunnel, counts only": (f"SELECT value, {reached} FROM ({one}) WHERE depth > 0 GROUP BY value", funnels)}
        if query_name == "strict funnel":
            frame = "OVER (PARTITION BY person_id ORDER BY time ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"
            rows = f"SELECT person_id, {micros} AS time, toString(event) AS name FROM bench.events WHERE {range_of(ALL)}"
            ahead = ", ".join(f"leadInFrame(name, {far}) {frame} AS name{far}, leadInFrame(toNullable(time), {far}) {frame} AS time{far}"
                              for far in (1, 2))
            depth = (f"1 + (name1 = '{STEPS[1]}' AND time1 - time <= {WINDOW}) "
                     f"+ (name1 = '{STEPS[1]}' AND name2 = '{STEPS[2]}' AND time2 - time <= {WINDOW})")
            paths = f"SELECT person_id, {depth} AS path FROM (SELECT *, {ahead} FROM ({rows})) WHERE name = '{STEPS[0]}'"
            return {"window": (f"SELECT {reached} FROM (SELECT max(path) AS depth FROM ({paths}) GROUP BY person_id)", funnel)}
        if query_name == "daily total":
            return {"": (f"SELECT {day}, count() {viewed}", by_day)}
        if query_name == "daily uniques":
            return {"": (f"SELECT {day}, uniqExact(person_id) {viewed}", by_day)}
        if query_name == "by url, top 25":
            return {"": (f"""WITH counted AS (SELECT {day}, current_url AS url, count() AS number FROM bench.events
                WHERE event = '$pageview' AND {range_of(MONTH)} GROUP BY day, url)
                SELECT if(url IN (SELECT url FROM counted GROUP BY url ORDER BY sum(number) DESC, url LIMIT {TOP}), url, 'other') AS value,
                day, sum(number) FROM counted GROUP BY value, day""", by_value)}
        if query_name == "filtered sum":
            return {"": (f"""SELECT {day}, sum(amount) FROM bench.events WHERE event = '{STEPS[1]}' AND amount > 50
                AND {range_of(MONTH)} GROUP BY day ORDER BY day""", by_day)}
        days = days_before(MONTH, LOOK_BACK - 1)
        return {"": (f"""SELECT end, uniqExact(person_id) FROM (SELECT person_id, arrayJoin(range({LOOK_BACK})) + day AS end
            FROM (SELECT DISTINCT person_id, {day} FROM bench.events WHERE event = '{STEPS[0]}' AND {range_of(days)}))
            WHERE end >= '{MONTH[0]}' AND end <= '{MONTH[1]}' GROUP BY end ORDER BY end""", by_day)}

    def run_query(self, query):
        sql, read = query
        return read(self.rows(sql))


class DuckDB:
    """DuckDB on a table of its own, sorted by person and time."""

    def __init__(self, data, work):
        import duckdb

        path = work / "duck.db"
        path.unlink(missing_ok=True)
        self.connection = duckdb.connect(str(path))
        self.connection.execute(f"SET TimeZone = 'UTC'; SET temp_directory = '{work}/duck'; SET preserve_insertion_order = false")
        self.connection.execute(f"""CREATE TABLE events AS SELECT * REPLACE (person_id::UUID AS person_id)
            FROM read_parquet('{data}') ORDER BY person_id, timestamp""")
        self.connection.execute("CHECKPOINT")
        self.version, self.bytes = duckdb.__version__, path.stat().st_size

    def variants(self, query_name):
        def range_of(days):
            return f"timestamp >= TIMESTAMPTZ '{days[0]} 00:00:00+00' AND timestamp < TIMESTAMPTZ '{after(days[1])} 00:00:00+00'"

        if variants := periods.duckdb(range_of, days_before).get(query_name):
            return variants
        day = "timestamp::DATE AS day"
        steps = f"SELECT person_id, epoch_us(timestamp) AS time, event, browser FROM events WHERE event IN ({LIST}) AND {range_of(ALL)}"
        viewed = f"FROM events WHERE event = '{STEPS[0]}' AND {range_of(MONTH)} GROUP BY day ORDER BY day"
        depth = (f"CASE WHEN t1 <= t0 + {WINDOW} AND t2 <= t0 + {WINDOW} THEN 3 WHEN t1 <= t0 + {WINDOW} THEN 2 ELSE 1 END")
        reached = "count(*), count(*) FILTER (depth >= 2), count(*) FILTER (depth >= 3)"
        joined = f"""WITH steps AS MATERIALIZED ({steps}), first AS (SELECT person_id, time AS t0 FROM steps WHERE event = '{STEPS[0]}'),
            second AS (SELECT person_id, time FROM steps WHERE event = '{STEPS[1]}'),
            third AS (SELECT person_id, time FROM steps WHERE event = '{STEPS[2]}'),
            two AS (SELECT first.*, second.time AS t1 FROM first ASOF LEFT JOIN second
                ON first.person_id = second.person_id AND first.t0 <= second.time),
            three AS (SELECT two.*, third.time AS t2 FROM two ASOF LEFT JOIN third
                ON two.person_id = third.person_id AND two.t1 <= third.time),
            deepest AS (SELECT person_id, max({depth}) AS depth FROM three GROUP BY person_id)"""
        if query_name == "funnel":
            return {"as-of joins, counts only": (f"{joined} SELECT {reached} FROM deepest", funnel)}
        if query_name == "funnel by browser":
            return {"as-of joins, counts only": (f"""{joined}, touch AS (SELECT person_id, arg_min(browser, time) AS value FROM steps
                GROUP BY person_id) SELECT value, {reached} FROM deepest JOIN touch USING (person_id) GROUP BY value""", funnels)}
        if query_name == "strict funnel":
            rows = f"SELECT person_id, epoch_us(timestamp) AS t0, event FROM events WHERE {range_of(ALL)}"
            ahead = ", ".join(f"lead(event, {far}) OVER ahead AS name{far}, lead(t0, {far}) OVER ahead AS time{far}" for far in (1, 2))
            return {"window": (f"""WITH rows AS (SELECT *, {ahead} FROM ({rows}) WINDOW ahead AS (PARTITION BY person_id ORDER BY t0)),
                three AS (SELECT person_id, t0, CASE WHEN name1 = '{STEPS[1]}' THEN time1 END AS t1,
                    CASE WHEN name1 = '{STEPS[1]}' AND name2 = '{STEPS[2]}' THEN time2 END AS t2 FROM rows WHERE event = '{STEPS[0]}'),
                deepest AS (SELECT person_id, max({depth}) AS depth FROM three GROUP BY person_id)
                SELECT {reached} FROM deepest""", funnel)}
        if query_name == "daily total":
            return {"": (f"SELECT {day}, count(*) {viewed}", by_day)}
        if query_name == "daily uniques":
            return {"": (f"SELECT {day}, count(DISTINCT person_id) {viewed}", by_day)}
        if query_name == "by url, top 25":
            return {"": (f"""WITH counted AS (SELECT {day}, current_url AS url, count(*) AS number FROM events
                WHERE event = '$pageview' AND {range_of(MONTH)} GROUP BY ALL),
                top AS (SELECT url FROM counted GROUP BY url ORDER BY sum(number) DESC, url LIMIT {TOP})
                SELECT CASE WHEN url IN (SELECT url FROM top) THEN url ELSE 'other' END AS value, day, sum(number)::BIGINT
                FROM counted GROUP BY ALL""", by_value)}
        if query_name == "filtered sum":
            return {"": (f"""SELECT {day}, sum(amount) FROM events WHERE event = '{STEPS[1]}' AND amount > 50
                AND {range_of(MONTH)} GROUP BY day ORDER BY day""", by_day)}
        days = days_before(MONTH, LOOK_BACK - 1)
        return {"": (f"""WITH seen AS (SELECT DISTINCT person_id, {day} FROM events WHERE event = '{STEPS[0]}' AND {range_of(days)})
            SELECT day + far::INTEGER AS until, count(DISTINCT person_id) FROM seen, range({LOOK_BACK}) AS back(far)
            WHERE until BETWEEN DATE '{MONTH[0]}' AND DATE '{MONTH[1]}' GROUP BY until ORDER BY until""", by_day)}

    def run_query(self, query):
        sql, read = query
        return read(self.connection.execute(sql).fetchall())


class Polars:
    """Polars on columns that are in memory already, sorted by person and time, strings as categories, persons as numbers."""

    def __init__(self, data, work):
        import polars

        self.pl = pl = polars
        texts = [pl.col(name).cast(pl.Categorical) for name in ("event", "browser", "current_url")]
        # In the order of their first event: any order keeps the rows of a person together.
        person = pl.col("person_id").cast(pl.Categorical).to_physical()
        columns = ["event", "person_id", "timestamp", "browser", "current_url", "amount"]
        frame = pl.scan_parquet(data).select(columns).with_columns(person, *texts)
        self.frame = frame.sort("person_id", "timestamp").collect()
        self.version, self.bytes = pl.__version__, self.frame.estimated_size()

    def rows_of(self, event, days):
        start, end = (datetime.datetime.fromisoformat(day).replace(tzinfo=datetime.timezone.utc) for day in (days[0], after(days[1])))
        inside = (self.pl.col("timestamp") >= start) & (self.pl.col("timestamp") < end)
        condition = inside if event is None else inside & (self.pl.col("event") == event)
        return self.frame.lazy().filter(condition)

    def variants(self, query_name):
        pl = self.pl
        day = pl.col("timestamp").dt.date().alias("day")
        viewed = lambda days: self.rows_of(STEPS[0], days)  # noqa: E731
        if variants := periods.Polars(pl, self.frame, self.rows_of, days_before).statements().get(query_name):
            return variants
        if query_name == "strict funnel":
            return {"shift": (self.strict, funnel)}
        if query_name == "daily total":
            return {"": (lambda: viewed(MONTH).group_by(day).agg(pl.len()).collect().rows(), by_day)}
        if query_name == "daily uniques":
            return {"": (lambda: viewed(MONTH).group_by(day).agg(pl.col("person_id").n_unique()).collect().rows(), by_day)}
        if query_name == "by url, top 25":
            return {"": (self.by_url, by_value)}
        if query_name == "filtered sum":
            rows = lambda: self.rows_of(STEPS[1], MONTH).filter(pl.col("amount") > 50)  # noqa: E731
            return {"": (lambda: rows().group_by(day).agg(pl.col("amount").sum()).collect().rows(), by_day)}
        if query_name == "rolling 7-day uniques":
            return {"": (lambda: self.rolling(viewed(days_before(MONTH, LOOK_BACK - 1)), day), by_day)}
        return {}  # it cannot count funnels at a comparable speed

    def by_url(self):
        pl = self.pl
        rows = self.rows_of("$pageview", MONTH)
        counted = rows.group_by(pl.col("timestamp").dt.date().alias("day"), "current_url").agg(pl.len()).collect()
        url = pl.col("current_url").cast(pl.String)
        counted = counted.with_columns(url)
        top = counted.group_by("current_url").agg(pl.col("len").sum()).sort(["len", "current_url"], descending=[True, False]).head(TOP)
        value = pl.when(url.is_in(top["current_url"].implode())).then(url).otherwise(pl.lit("other")).alias("value")
        return counted.group_by(value, "day").agg(pl.col("len").sum()).rows()

    def rolling(self, rows, day):
        pl = self.pl
        first, last = map(datetime.date.fromisoformat, MONTH)
        seen = rows.select("person_id", day).unique().with_columns(far=pl.lit(list(range(LOOK_BACK)))).explode("far")
        seen = seen.with_columns(until=pl.col("day") + pl.duration(days=pl.col("far")))
        seen = seen.filter((pl.col("until") >= first) & (pl.col("until") <= last))
        return seen.group_by("until").agg(pl.col("person_id").n_unique()).collect().rows()

    def strict(self):
        pl = self.pl
        rows = self.rows_of(None, ALL).select("person_id", "event", time=pl.col("timestamp").dt.epoch("us"))

        def is_next(far, step):
            near = (pl.col("person_id").shift(-far) == pl.col("person_id")) & (pl.col("time").shift(-far) - pl.col("time") <= WINDOW)
            return (near & (pl.col("event").shift(-far) == step)).fill_null(value=False)

        second = is_next(1, STEPS[1])
        depth = 1 + second.cast(pl.Int8) + (second & is_next(2, STEPS[2])).cast(pl.Int8)
        deepest = rows.with_columns(depth=depth).filter(pl.col("event") == STEPS[0]).group_by("person_id").agg(pl.col("depth").max())
        return deepest.select(pl.len(), (pl.col("depth") >= 2).sum(), third=(pl.col("depth") >= 3).sum()).collect().rows()

    def run_query(self, query):
        run, read = query
        return read(run())


PEERS = {"clickhouse": ClickHouse, "duckdb": DuckDB, "polars": Polars}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--data", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    peer = PEERS[options.peer](options.data, options.work)
    name = PEERS[options.peer].__name__
    print(json.dumps({"peer": name, "version": peer.version, "bytes": peer.bytes}), flush=True)
    for query_name in QUERIES:
        for variant, query in peer.variants(query_name).items():
            peer.run_query(query)  # the first run is not counted
            runs = []
            for _ in range(options.repeat):
                began, spent = time.perf_counter(), cpu()
                result = peer.run_query(query)
                runs.append((cpu() - spent, time.perf_counter() - began))
            print(json.dumps({"peer": name, "query": query_name, "variant": variant, "runs": runs, "result": result}), flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"peer": name, "peak_mb": peak}), flush=True)


if __name__ == "__main__":
    main()
