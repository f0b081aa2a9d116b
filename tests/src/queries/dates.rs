//! A date case over HTTP: a trend over the range, and one event on each side of both of its ends.

use chrono::{DateTime, Datelike, Duration, DurationRound, NaiveDate, TimeZone, Timelike, Utc};
use chrono_tz::Tz;
use serde_json::{Map, Value, json};

/// A trend that shows a range.
pub(super) struct Probe {
    pub body: Map<String, Value>,
    /// Name and instant of each event.
    pub events: Vec<(String, String)>,
    pub view: fn(&Value) -> Value,
    pub want: Value,
}

/// The query of a case; `None` if a trend cannot show it.
pub(super) fn probe(case: &Value) -> Option<Probe> {
    let kind = case["kind"].as_str()?;
    if kind == "flag_relative" || (kind == "parse" && case["truncate"] == false) {
        return None;
    }
    let zone: Tz = case["timezone"].as_str()?.parse().ok()?;
    let monday = case["week_start_day"] == 1;
    let at = |key: &str| Some(DateTime::parse_from_rfc3339(case[key].as_str()?).ok()?.with_timezone(&zone));
    let start = if kind == "parse" { at("expect") } else { at("expect_from") };
    let end = at("expect_to");
    let interval = case["interval"].as_str().map_or_else(|| finest(start), str::to_owned);
    let mut probe =
        Probe { body: Map::new(), events: Vec::new(), view: observed, want: json!({"counts": {}}) };
    let mut add = |name: &str, instant: DateTime<Tz>, count: u8| {
        let text = instant.with_timezone(&Utc).to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true);
        probe.events.push((name.to_owned(), text));
        probe.want["counts"][name] = json!(count);
    };
    if let Some(start) = start {
        let counted = if interval == "month" { bucket(start, "month", monday) } else { start };
        add("first inside", counted, 1);
        add("before", counted - Duration::seconds(1), 0);
    }
    if let Some(end) = end {
        let last = end.duration_trunc(Duration::seconds(1)).ok()?;
        add("last inside", last, 1);
        add("after", last + Duration::seconds(1), 0);
    }
    if let Some(start) = start {
        probe.want["first day"] = json!(day(start, &interval, monday));
    }
    if let Some(end) = end {
        probe.want["last day"] = json!(day(end, &interval, monday));
    }
    if case["expect_days"].is_array() {
        probe.want["days"] = case["expect_days"].clone();
    }
    let names: Vec<&str> = match probe.events.is_empty() {
        true => vec!["anything"],
        false => probe.events.iter().map(|(name, _)| name.as_str()).collect(),
    };
    let series: Vec<Value> =
        names.iter().enumerate().map(|(order, name)| json!({"id": name, "order": order})).collect();
    let mut body = json!({"events": series, "interval": interval});
    for key in ["date_from", "date_to", "explicit_date", "compare_to"] {
        if !case[key].is_null() {
            body[key] = case[key].clone();
        }
    }
    if kind == "parse" {
        body["date_from"] = case["input"].clone();
    }
    if matches!(kind, "previous" | "compare_to") {
        body["compare"] = json!(true);
        probe.view = observed_before;
    }
    probe.body = body.as_object().cloned()?;
    Some(probe)
}

/// Day where the range begins with one, else hour.
fn finest(start: Option<DateTime<Tz>>) -> String {
    let is_day = start.is_none_or(|start| bucket(start, "day", false) == start);
    if is_day { "day" } else { "hour" }.to_owned()
}

fn day(instant: DateTime<Tz>, interval: &str, monday: bool) -> String {
    let detailed = matches!(interval, "hour" | "minute");
    bucket(instant, interval, monday)
        .format(if detailed { "%Y-%m-%d %H:%M:%S" } else { "%Y-%m-%d" })
        .to_string()
}

/// The start of the instant's bucket.
fn bucket(instant: DateTime<Tz>, interval: &str, monday: bool) -> DateTime<Tz> {
    let back = Duration::seconds(i64::from(instant.second()))
        + Duration::nanoseconds(i64::from(instant.nanosecond()));
    let minute = instant - back;
    let hour = minute - Duration::minutes(i64::from(instant.minute()));
    let date = instant.date_naive();
    let first_of = |date: NaiveDate| {
        let midnight = date.and_hms_opt(0, 0, 0).expect("midnight");
        instant.timezone().from_local_datetime(&midnight).earliest().unwrap_or(hour)
    };
    match interval {
        "minute" => minute,
        "hour" => hour,
        "day" => first_of(date),
        "month" => first_of(date.with_day(1).expect("a first day")),
        _ => {
            let weekday = date.weekday();
            let days = if monday { weekday.num_days_from_monday() } else { weekday.num_days_from_sunday() };
            first_of(date - Duration::days(i64::from(days)))
        }
    }
}

fn observed(result: &Value) -> Value {
    shown(result, |_| true)
}

fn observed_before(result: &Value) -> Value {
    shown(result, |row| row["compare_label"] == "previous")
}

fn shown(result: &Value, expected: fn(&Value) -> bool) -> Value {
    let rows: Vec<&Value> = result.as_array().into_iter().flatten().filter(|row| expected(row)).collect();
    let Some(first) = rows.first() else { return json!({"rows": "none"}) };
    let days = first["days"].as_array().cloned().unwrap_or_default();
    let mut counts = json!({});
    for row in &rows {
        counts[row["label"].as_str().unwrap_or_default()] = row["count"].clone();
    }
    json!({"counts": counts, "days": days, "first day": days.first(), "last day": days.last()})
}
