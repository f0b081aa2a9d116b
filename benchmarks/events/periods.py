"""Retention, lifecycles, stickiness and paths in the language of each peer.

Each peer gets what a practitioner who knows it well would write: one bit for each period and person where periods are
counted, arrays or window functions for sessions. `statements(peer)` are {query: {variant: (query, reader of its rows)}}."""

from queries import (MONTH, PATH_EDGES, PATH_STEPS, SESSION_GAP, STEPS, WEEKS, WEEKS_RANGE, bars_of, edges_of, statuses_of, weeks_of)


def weeks(rows):
    return weeks_of({(int(week), int(distance)): int(persons) for week, distance, persons in rows})


def weeks_of_masks(rows):
    """Of [(one bit for each week, persons)]."""
    numbers = {}
    for mask, persons in rows:
        active = [week for week in range(WEEKS) if mask >> week & 1]
        for week in active:
            for later in active:
                if later >= week:
                    numbers[week, later - week] = numbers.get((week, later - week), 0) + persons
    return weeks_of(numbers)


def weeks_of_arrays(rows):
    """Of one array for each week: the persons of the week, then of each week after it."""
    return weeks_of({(week, distance): int(persons) for week, array in enumerate(rows[0]) for distance, persons in enumerate(array)})


def statuses(rows):
    return statuses_of({(status, str(day)): int(persons) for status, day, persons in rows})


def bars(rows):
    return bars_of({int(days): int(persons) for days, persons in rows})


def edges(rows):
    return edges_of([(int(number), source, target, int(count), float(micros)) for number, source, target, count, micros in rows])


def clickhouse(range_of, days_before):
    """`range_of` is the condition on a range, `days_before` a range that starts so many days earlier."""
    viewed, pages = f"event = '{STEPS[0]}'", "event = '$pageview'"
    week = f"intDiv(toDate(timestamp) - toDate('{WEEKS_RANGE[0]}'), 7)"
    page_weeks = f"SELECT person_id, {week} AS week FROM bench.events WHERE {pages} AND {range_of(WEEKS_RANGE)}"
    masks = f"SELECT groupBitOr(bitShiftLeft(toUInt16(1), week)) AS weeks FROM ({page_weeks}) GROUP BY person_id"
    # The last week has none after it, but the function takes two conditions or more.
    returns = [", ".join(f"week = {later}" for later in range(first, max(WEEKS, first + 2))) for first in range(WEEKS)]
    cohorts = ", ".join(f"retention({conditions}) AS week{first}" for first, conditions in enumerate(returns))
    sums = ", ".join(f"sumForEach(week{first})" for first in range(WEEKS))
    active = f"groupUniqArrayIf(toDate(timestamp), {viewed} AND {range_of(days_before(MONTH, 1))}) AS days"
    periods = ("arrayConcat(arrayMap(day -> (multiIf(has(days, day - 1), 'returning', day = born, 'new', 'resurrecting'), day), days), "
               "arrayMap(day -> ('dormant', day + 1), arrayFilter(day -> NOT has(days, day + 1), days)))")
    lifecycle = f"""SELECT one.1 AS status, one.2 AS day, count() FROM (SELECT arrayJoin({periods}) AS one FROM (
        SELECT {active}, toDate(min(timestamp)) AS born FROM bench.events GROUP BY person_id HAVING notEmpty(days)))
        WHERE day BETWEEN '{MONTH[0]}' AND '{MONTH[1]}' GROUP BY status, day"""
    sticky = f"FROM bench.events WHERE {viewed} AND {range_of(MONTH)} GROUP BY person_id"
    day_bit = f"bitShiftLeft(toUInt32(1), toDate(timestamp) - toDate('{MONTH[0]}'))"
    ordered = f"""SELECT arraySort(groupArray((toUnixTimestamp64Micro(timestamp), event))) AS events, events.1 AS times,
        arrayMap((time, last) -> time - last >= {SESSION_GAP}, times, arrayPushFront(arrayPopBack(times), times[1])) AS gaps
        FROM bench.events WHERE {range_of(MONTH)} GROUP BY person_id"""
    sessions = f"SELECT arrayJoin(arraySplit((event, gap) -> gap, events, gaps)) AS session FROM ({ordered})"
    steps = f"""SELECT arraySlice(arrayFilter((event, next) -> event.2 != next, session, arrayPushBack(arrayPopFront(session.2), '')), 1, {PATH_STEPS})
        AS steps FROM ({sessions})"""
    passages = f"""SELECT arrayJoin(arrayMap(number -> (number, steps[number].2, steps[number + 1].2, steps[number + 1].1 - steps[number].1),
        range(1, length(steps)))) AS passage FROM ({steps})"""
    paths = f"""SELECT passage.1 AS number, passage.2 AS source, passage.3 AS target, count() AS passages, avg(passage.4)
        FROM ({passages}) GROUP BY number, source, target ORDER BY passages DESC, number, source, target LIMIT {PATH_EDGES}"""
    return {
        "weekly retention": {
            "bit mask": (f"SELECT weeks, count() FROM ({masks}) GROUP BY weeks", weeks_of_masks),
            "retention()": (f"SELECT {sums} FROM (SELECT {cohorts} FROM ({page_weeks}) GROUP BY person_id)", weeks_of_arrays)},
        "daily lifecycle": {"": (lifecycle, statuses)},
        "stickiness": {
            "uniqExact": (f"SELECT days, count() FROM (SELECT uniqExact(toDate(timestamp)) AS days {sticky}) GROUP BY days", bars),
            "bit mask": (f"SELECT days, count() FROM (SELECT bitCount(groupBitOr({day_bit})) AS days {sticky}) GROUP BY days", bars)},
        # The table is ordered by person, which this setting makes use of. It does not pay for the other queries.
        "paths": {"arrays": (paths, edges), "arrays, in order": (f"{paths} SETTINGS optimize_aggregation_in_order = 1", edges)},
    }


def duckdb(range_of, days_before):
    """As `clickhouse`."""
    viewed, pages = f"event = '{STEPS[0]}'", "event = '$pageview'"
    week = f"date_diff('day', DATE '{WEEKS_RANGE[0]}', timestamp::DATE) // 7"
    masks = f"""SELECT bit_or(1 << ({week})::INTEGER) AS weeks FROM events WHERE {pages} AND {range_of(WEEKS_RANGE)} GROUP BY person_id"""
    lifecycle = f"""WITH active AS (SELECT DISTINCT person_id, timestamp::DATE AS day FROM events
            WHERE {viewed} AND {range_of(days_before(MONTH, 1))}),
        born AS (SELECT person_id, min(timestamp)::DATE AS first FROM events GROUP BY person_id),
        beside AS (SELECT *, lag(day) OVER person AS before, lead(day) OVER person AS after FROM active
            WINDOW person AS (PARTITION BY person_id ORDER BY day)),
        statuses AS (SELECT CASE WHEN before = day - 1 THEN 'returning' WHEN first = day THEN 'new' ELSE 'resurrecting' END AS status, day
            FROM beside JOIN born USING (person_id)
            UNION ALL SELECT 'dormant', day + 1 FROM beside WHERE after IS DISTINCT FROM day + 1)
        SELECT status, day, count(*) FROM statuses WHERE day BETWEEN DATE '{MONTH[0]}' AND DATE '{MONTH[1]}' GROUP BY ALL"""
    day_bit = f"1 << date_diff('day', DATE '{MONTH[0]}', timestamp::DATE)::INTEGER"
    sticky = f"SELECT bit_count(bit_or({day_bit})) AS days FROM events WHERE {viewed} AND {range_of(MONTH)} GROUP BY person_id"
    paths = f"""WITH rows AS (SELECT person_id, epoch_us(timestamp) AS time, event FROM events WHERE {range_of(MONTH)}),
        beside AS (SELECT *, lag(time) OVER person AS before, lead(time) OVER person AS after, lead(event) OVER person AS next FROM rows
            WINDOW person AS (PARTITION BY person_id ORDER BY time)),
        runs AS (SELECT *, sum(CASE WHEN time - before < {SESSION_GAP} THEN 0 ELSE 1 END) OVER (PARTITION BY person_id ORDER BY time) AS session
            FROM beside),
        steps AS (SELECT event, time, row_number() OVER session AS number, lead(event) OVER session AS target, lead(time) OVER session AS until
            FROM runs WHERE next IS DISTINCT FROM event OR after - time >= {SESSION_GAP}
            WINDOW session AS (PARTITION BY person_id, session ORDER BY time))
        SELECT number, event, target, count(*) AS passages, avg(until - time) FROM steps WHERE number < {PATH_STEPS} AND target IS NOT NULL
        GROUP BY ALL ORDER BY passages DESC, number, event, target LIMIT {PATH_EDGES}"""
    return {
        "weekly retention": {"bit mask": (f"SELECT weeks, count(*) FROM ({masks}) GROUP BY weeks", weeks_of_masks)},
        "daily lifecycle": {"": (lifecycle, statuses)},
        "stickiness": {"bit mask": (f"SELECT days, count(*) FROM ({sticky}) GROUP BY days", bars)},
        "paths": {"window": (paths, edges)},
    }


class Polars:
    """The queries on the frame of a peer, which is sorted by person and time."""

    def __init__(self, pl, frame, rows_of, days_before):
        self.pl, self.frame, self.rows_of, self.days_before = pl, frame, rows_of, days_before

    def day(self):
        return self.pl.col("timestamp").dt.date().alias("day")

    def retention(self):
        pl = self.pl
        first = pl.lit(WEEKS_RANGE[0]).str.to_date()
        week = (pl.col("timestamp").dt.date() - first).dt.total_days() // 7
        rows = self.rows_of("$pageview", WEEKS_RANGE).select("person_id", week=week.cast(pl.Int64)).unique()
        masks = rows.group_by("person_id").agg(weeks=(2 ** pl.col("week")).sum())
        return masks.group_by("weeks").agg(pl.len()).with_columns(pl.col("weeks").cast(pl.Int64)).collect().rows()

    def lifecycle(self):
        pl = self.pl
        active = self.rows_of(STEPS[0], self.days_before(MONTH, 1)).select("person_id", self.day()).unique().sort("person_id", "day")
        person, day = pl.col("person_id"), pl.col("day")
        one = pl.duration(days=1)
        active = active.with_columns(
            returns=((person.shift(1) == person) & (day.shift(1) == day - one)).fill_null(value=False),
            stays=((person.shift(-1) == person) & (day.shift(-1) == day + one)).fill_null(value=False))
        # The frame is sorted, so the first row of a person is its earliest event.
        first = self.frame.lazy().filter((person != person.shift(1)).fill_null(value=True)).select("person_id", born=self.day())
        status = pl.when("returns").then(pl.lit("returning")).when(pl.col("born") == day).then(pl.lit("new")).otherwise(pl.lit("resurrecting"))
        counted = active.join(first, on="person_id").select(status=status, day=day)
        dormant = active.filter(~pl.col("stays")).select(status=pl.lit("dormant"), day=day + one)
        shown = pl.concat([counted, dormant]).group_by("status", "day").agg(pl.len())
        return shown.filter(day.is_between(pl.lit(MONTH[0]).str.to_date(), pl.lit(MONTH[1]).str.to_date())).collect().rows()

    def stickiness(self):
        pl = self.pl
        days = self.rows_of(STEPS[0], MONTH).select("person_id", self.day()).unique().group_by("person_id").agg(days=pl.len())
        return days.group_by("days").agg(pl.len()).collect().rows()

    def paths(self):
        pl = self.pl
        person, time, event = pl.col("person_id"), pl.col("time"), pl.col("event")
        rows = self.rows_of(None, MONTH).select("person_id", "event", time=pl.col("timestamp").dt.epoch("us"))
        goes_on = ((person.shift(1) == person) & (time - time.shift(1) < SESSION_GAP)).fill_null(value=False)
        repeats = ((person.shift(-1) == person) & (event.shift(-1) == event) & (time.shift(-1) - time < SESSION_GAP)).fill_null(value=False)
        steps = rows.select("event", "time", session=(~goes_on).cum_sum(), repeats=repeats).filter(~pl.col("repeats"))
        session, index = pl.col("session"), pl.int_range(pl.len())
        begins = (session != session.shift(1)).fill_null(value=True)
        number = index - pl.when(begins).then(index).forward_fill() + 1
        passages = steps.select(number=number, source="event", target=event.shift(-1), micros=time.shift(-1) - time,
                                is_passage=session.shift(-1) == session)
        passages = passages.filter(pl.col("is_passage") & (pl.col("number") < PATH_STEPS))
        counted = passages.group_by("number", "source", "target").agg(pl.len().alias("passages"), pl.col("micros").mean()).collect()
        names = counted.with_columns(pl.col("source").cast(pl.String), pl.col("target").cast(pl.String))
        order = ["passages", "number", "source", "target"]
        return names.sort(order, descending=[True, False, False, False]).head(PATH_EDGES).rows()

    def statements(self):
        return {"weekly retention": {"": (self.retention, weeks_of_masks)}, "daily lifecycle": {"": (self.lifecycle, statuses)},
                "stickiness": {"": (self.stickiness, bars)}, "paths": {"": (self.paths, edges)}}
