//! Converts wall-clock times to instants, and formats instants.
//!
//! Must stay true: every wall-clock time has an instant. A time that occurs twice is the earlier instant; a time that a clock
//! change skips uses the offset before the change.

use chrono::{
    DateTime, Days, Duration, FixedOffset, MappedLocalTime, NaiveDate, NaiveDateTime, NaiveTime, Offset,
    TimeZone, Utc,
};
use chrono_tz::Tz;

use crate::dates::Micros;

/// The instant of a wall-clock time.
pub fn at(local: NaiveDateTime, zone: Tz) -> DateTime<Tz> {
    match zone.from_local_datetime(&local) {
        MappedLocalTime::Single(instant) | MappedLocalTime::Ambiguous(instant, _) => instant,
        MappedLocalTime::None => {
            let before = local.checked_sub_days(Days::new(1)).unwrap_or(local);
            let offset = zone.offset_from_utc_datetime(&before).fix();
            let utc = local.checked_sub_offset(offset).unwrap_or(local);
            zone.from_utc_datetime(&utc)
        }
    }
}

/// The instant of a time in a text, in microseconds since the Unix epoch: with the offset of the text, or in `zone`.
pub fn micros_of(local: NaiveDateTime, offset: Option<FixedOffset>, zone: Tz) -> Micros {
    match offset {
        // Years of texts have four digits, so nothing overflows.
        Some(offset) => local.and_utc().timestamp_micros() - i64::from(offset.local_minus_utc()) * 1_000_000,
        None => at(local, zone).timestamp_micros(),
    }
}

/// The instant of a wall-clock time that ends a range. The end of a day is the last microsecond before the next day, also
/// when clocks go back at midnight and repeat the last hour of the day.
pub fn end_at(local: NaiveDateTime, zone: Tz) -> DateTime<Tz> {
    let instant = Duration::microseconds(1);
    match local.checked_add_signed(instant) {
        Some(next) if next.time() == NaiveTime::MIN => shift(day_start(next.date(), zone), -instant),
        _ => at(local, zone),
    }
}

/// The first instant of a day.
pub fn day_start(day: NaiveDate, zone: Tz) -> DateTime<Tz> {
    at(day.and_time(NaiveTime::MIN), zone)
}

/// Converts microseconds since the Unix epoch. Values outside of chrono's range give the epoch.
pub fn from_micros(instant: Micros, zone: Tz) -> DateTime<Tz> {
    DateTime::<Utc>::from_timestamp_micros(instant).unwrap_or_default().with_timezone(&zone)
}

/// Adds a duration in absolute time; unchanged on overflow.
pub fn shift(instant: DateTime<Tz>, by: Duration) -> DateTime<Tz> {
    instant.checked_add_signed(by).unwrap_or(instant)
}

/// Formats as `2020-01-04T23:59:59.999999Z`: UTC, with six fraction digits or none.
pub fn utc_text<Z: TimeZone>(instant: &DateTime<Z>) -> String {
    let utc = instant.with_timezone(&Utc);
    let form =
        if utc.timestamp_subsec_micros() == 0 { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%.6fZ" };
    utc.format(form).to_string()
}

/// Formats as `2020-01-04T00:00:00-07:00`: local time with offset, `Z` for offset zero.
pub fn zoned_text(instant: &DateTime<Tz>) -> String {
    if instant.offset().fix().local_minus_utc() == 0 {
        return utc_text(instant);
    }
    instant.format("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn local(text: &str) -> NaiveDateTime {
        text.parse().unwrap()
    }

    #[test]
    fn skipped_and_doubled_times_have_instants() {
        let zone = chrono_tz::US::Pacific;
        assert_eq!(utc_text(&at(local("2024-03-10T02:30:00"), zone)), "2024-03-10T10:30:00Z");
        assert_eq!(utc_text(&at(local("2024-11-03T01:30:00"), zone)), "2024-11-03T08:30:00Z");
        // In Santiago, clocks go back from midnight to 23:00, so the day is an hour longer.
        let santiago = chrono_tz::America::Santiago;
        let end = end_at(local("2024-04-06T23:59:59.999999"), santiago);
        assert_eq!(utc_text(&end), "2024-04-07T03:59:59.999999Z");
        assert_eq!(utc_text(&end_at(local("2024-04-06T23:30:00"), santiago)), "2024-04-07T02:30:00Z");
        // The clocks of São Paulo went from 23:59:59 to 01:00:00.
        let day = NaiveDate::from_ymd_opt(2018, 11, 4).unwrap();
        assert_eq!(zoned_text(&day_start(day, chrono_tz::America::Sao_Paulo)), "2018-11-04T01:00:00-02:00");
    }
}
