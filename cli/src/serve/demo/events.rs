//! The demo's events: those of a web shop, shifted by whole days so that the newest are from the day before the first start.
//!
//! Must stay true: an installation has one shift. It is stored before the first event, because an import with another shift
//! would create other events instead of deduplicating.

use std::io::{BufRead, BufReader, BufWriter, Write};

use chrono::{DateTime, Days, NaiveDate, Utc};
use flate2::read::GzDecoder;
use pennon_core::clock::timestamp;
use pennon_core::store::{Item, StoreError, Table, WriteCondition, keys};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::NamedTempFile;

/// The events, as JSON lines under gzip.
const EVENTS: &[u8] = include_bytes!("../../../demo/ecom_events.jsonl.gz");
/// The day of the newest event, in UTC.
const LAST_DAY: NaiveDate = NaiveDate::from_ymd_opt(2024, 6, 29).unwrap();

/// The number of days that events are shifted by. Never negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shift {
    days: u64,
}

impl Shift {
    /// The shift that moves the newest events to the day before `now`.
    fn for_now(now: DateTime<Utc>) -> Shift {
        let days = now.date_naive().signed_duration_since(LAST_DAY).num_days() - 1;
        Shift { days: days.try_into().unwrap_or(0) }
    }

    /// The shift of the installation. The first load stores it.
    pub(super) async fn get_or_create(records: &Table, now: DateTime<Utc>) -> Result<Shift, StoreError> {
        let key = keys::declared("DEMO", "shift");
        if let Some(item) = records.get(&key).await? {
            return item.body();
        }
        let shift = Shift::for_now(now);
        records.put(Item::new(key, &shift)?, WriteCondition::Absent).await?;
        Ok(shift)
    }

    fn apply(self, instant: DateTime<Utc>) -> Option<DateTime<Utc>> {
        instant.checked_add_days(Days::new(self.days))
    }
}

/// A temporary file with the shifted events, as JSON lines.
pub(super) fn write_shifted(shift: Shift) -> Result<NamedTempFile, String> {
    let failed = |e: &dyn std::fmt::Display| format!("the demo's events cannot be prepared: {e}");
    let file = tempfile::Builder::new().prefix("pennon-demo-").suffix(".jsonl").tempfile();
    let file = file.map_err(|e| failed(&e))?;
    let mut output = BufWriter::new(file.as_file());
    for line in BufReader::new(GzDecoder::new(EVENTS)).lines() {
        let line = line.map_err(|e| failed(&e))?;
        let shifted = shift_line(&line, shift).ok_or_else(|| failed(&format!("no event: {line}")))?;
        writeln!(output, "{shifted}").map_err(|e| failed(&e))?;
    }
    output.flush().map_err(|e| failed(&e))?;
    drop(output);
    Ok(file)
}

fn shift_line(line: &str, shift: Shift) -> Option<Value> {
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
        Shift::for_now(now.parse().unwrap()).days
    }

    #[test]
    fn the_newest_events_are_from_yesterday() {
        assert_eq!(shift_at("2024-06-30T00:00:00Z"), 0);
        assert_eq!(shift_at("2024-06-30T23:59:59Z"), 0);
        assert_eq!(shift_at("2024-07-01T00:00:00Z"), 1);
        assert_eq!(shift_at("2025-06-30T12:00:00Z"), 365);
        assert_eq!(shift_at("1970-01-01T00:00:00Z"), 0, "events are not moved into the past");
    }

    #[test]
    fn a_moved_event_keeps_its_time_of_day_and_all_else() {
        let line = r#"{"event":"home","distinct_id":"u","timestamp":"2024-06-29T22:02:40.001Z","properties":{"a":1.50}}"#;
        let moved = shift_line(line, Shift { days: 2 }).unwrap();
        assert!(moved["timestamp"].as_str().unwrap().starts_with("2024-07-01T22:02:40.001"), "{moved}");
        assert_eq!((&moved["event"], &moved["distinct_id"]), (&"home".into(), &"u".into()));
        assert_eq!(moved["properties"]["a"], 1.5);
        assert!(shift_line(line, Shift { days: u64::MAX }).is_none());
        assert!(shift_line("{}", Shift { days: 1 }).is_none());
    }

    #[tokio::test]
    async fn an_installation_keeps_the_shift_of_its_first_load() {
        let records = crate::embedded::Embedded::in_memory().await.unwrap().store(None).records;
        let first = Shift::get_or_create(&records, "2024-07-10T12:00:00Z".parse().unwrap()).await.unwrap();
        let second = Shift::get_or_create(&records, "2024-07-12T12:00:00Z".parse().unwrap()).await.unwrap();
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
