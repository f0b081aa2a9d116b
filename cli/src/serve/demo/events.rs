//! The demo's events: a web shop's, moved by whole days so that the newest are of the day before the first start.
//!
//! Must stay true: an installation has one shift. It is stored before the first event is, because an event that was imported
//! with another shift would be another event.

use std::io::{BufRead, BufReader, BufWriter, Write};

use chrono::{DateTime, Days, NaiveDate, Utc};
use flate2::read::GzDecoder;
use pennon_core::clock::timestamp;
use pennon_core::store::{Guard, Item, StoreError, Table, keys};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::NamedTempFile;

/// The events, as JSON lines under gzip.
const EVENTS: &[u8] = include_bytes!("../../../demo/ecom_events.jsonl.gz");
/// The day of the newest event, in UTC.
const LAST_DAY: NaiveDate = NaiveDate::from_ymd_opt(2024, 6, 29).unwrap();

/// By how many days the events are moved. Before the day after their own last day they stay where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shift {
    days: u64,
}

impl Shift {
    /// The shift after which the newest events are of the day before `now`.
    fn at(now: DateTime<Utc>) -> Shift {
        let days = now.date_naive().signed_duration_since(LAST_DAY).num_days() - 1;
        Shift { days: days.try_into().unwrap_or(0) }
    }

    /// The shift of the installation, which is stored by the first load.
    pub(super) async fn of_installation(records: &Table, now: DateTime<Utc>) -> Result<Shift, StoreError> {
        let key = keys::declared("DEMO", "shift");
        if let Some(item) = records.get(&key).await? {
            return item.body();
        }
        let shift = Shift::at(now);
        records.put(Item::new(key, &shift)?, Guard::Absent).await?;
        Ok(shift)
    }

    fn apply(self, instant: DateTime<Utc>) -> Option<DateTime<Utc>> {
        instant.checked_add_days(Days::new(self.days))
    }
}

/// A temporary file with the moved events, as JSON lines.
pub(super) fn write_moved(shift: Shift) -> Result<NamedTempFile, String> {
    let failed = |e: &dyn std::fmt::Display| format!("the demo's events cannot be prepared: {e}");
    let file = tempfile::Builder::new().prefix("pennon-demo-").suffix(".jsonl").tempfile();
    let file = file.map_err(|e| failed(&e))?;
    let mut output = BufWriter::new(file.as_file());
    for line in BufReader::new(GzDecoder::new(EVENTS)).lines() {
        let line = line.map_err(|e| failed(&e))?;
        let moved = moved_line(&line, shift).ok_or_else(|| failed(&format!("no event: {line}")))?;
        writeln!(output, "{moved}").map_err(|e| failed(&e))?;
    }
    output.flush().map_err(|e| failed(&e))?;
    drop(output);
    Ok(file)
}

fn moved_line(line: &str, shift: Shift) -> Option<Value> {
    let mut event: Value = serde_json::from_str(line).ok()?;
    let instant: DateTime<Utc> = event.get("timestamp")?.as_str()?.parse().ok()?;
    event["timestamp"] = timestamp(shift.apply(instant)?).into();
    Some(event)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn shift_at(now: &str) -> u64 {
        Shift::at(now.parse().unwrap()).days
    }

    #[test]
    fn the_newest_events_are_of_yesterday() {
        assert_eq!(shift_at("2024-06-30T00:00:00Z"), 0);
        assert_eq!(shift_at("2024-06-30T23:59:59Z"), 0);
        assert_eq!(shift_at("2024-07-01T00:00:00Z"), 1);
        assert_eq!(shift_at("2025-06-30T12:00:00Z"), 365);
        assert_eq!(shift_at("1970-01-01T00:00:00Z"), 0, "events are not moved into the past");
    }

    #[test]
    fn a_moved_event_keeps_its_time_of_day_and_all_else() {
        let line = r#"{"event":"home","distinct_id":"u","timestamp":"2024-06-29T22:02:40.001Z","properties":{"a":1.50}}"#;
        let moved = moved_line(line, Shift { days: 2 }).unwrap();
        assert!(moved["timestamp"].as_str().unwrap().starts_with("2024-07-01T22:02:40.001"), "{moved}");
        assert_eq!((&moved["event"], &moved["distinct_id"]), (&"home".into(), &"u".into()));
        assert_eq!(moved["properties"]["a"], 1.5);
        assert!(moved_line(line, Shift { days: u64::MAX }).is_none());
        assert!(moved_line("{}", Shift { days: 1 }).is_none());
    }

    #[tokio::test]
    async fn an_installation_keeps_the_shift_of_its_first_load() {
        let records = crate::embedded::Embedded::in_memory().await.unwrap().store(None).records;
        let first = Shift::of_installation(&records, "2024-07-10T12:00:00Z".parse().unwrap()).await.unwrap();
        let second = Shift::of_installation(&records, "2024-07-12T12:00:00Z".parse().unwrap()).await.unwrap();
        assert_eq!((first.days, second), (10, first));
    }

    #[test]
    fn the_last_day_is_that_of_the_file() {
        let lines = BufReader::new(GzDecoder::new(EVENTS)).lines().map(Result::unwrap);
        let days = lines.map(|line| {
            serde_json::from_str::<Value>(&line).unwrap()["timestamp"].as_str().unwrap()[..10].to_owned()
        });
        assert_eq!(days.max().unwrap(), LAST_DAY.to_string());
    }
}
