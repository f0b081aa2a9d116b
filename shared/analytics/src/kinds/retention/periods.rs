//! The periods of a range: the rows of a result.
//!
//! Must stay true: periods are ascending and without gaps; the first holds the start of the range, the last its end. Hours step
//! in absolute time, longer periods by the calendar of the project's zone.

use chrono::{DateTime, Datelike, Days, Duration, Months};
use chrono_tz::Tz;
use pennon_filters::CalcResult;
use pennon_filters::dates::bucket_search::BucketStarts;
use pennon_filters::dates::buckets::{next_bucket_start, start_of};
use pennon_filters::dates::range::{DateRange, DateSpec, Rounding};
use pennon_filters::dates::{Interval, zone};

use super::dialects::period_name;
use super::limits;
use crate::project::ProjectContext;
use crate::scan::Micros;

/// The range from the start of its first period to the last instant of its last one. Without a start it has `count` periods.
pub(super) fn resolve_range(
    dates: &DateSpec,
    (rounding, count): (Rounding, usize),
    project: &ProjectContext,
    now: DateTime<Tz>,
) -> CalcResult<DateRange> {
    let period = rounding.interval;
    let requested = dates.resolve(rounding, now, project.earliest_event)?;
    let start = |at| start_of(at, period, project.week_start);
    let end = next_bucket_start(start(requested.to), period);
    let from = match dates.from {
        Some(_) => start(requested.from),
        None => start(periods_before(end, period, count)),
    };
    Ok(DateRange { from, first: from, to: zone::shift(end, Duration::microseconds(-1)) })
}

/// The start of the period that is `count` periods before the one that starts at `end`.
fn periods_before(end: DateTime<Tz>, period: Interval, count: usize) -> DateTime<Tz> {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let day = end.date_naive();
    let earlier = match period {
        Interval::Minute | Interval::Hour => return zone::shift(end, -Duration::hours(i64::from(count))),
        Interval::Day => day.checked_sub_days(Days::new(u64::from(count))),
        Interval::Week => day.checked_sub_days(Days::new(7 * u64::from(count))),
        Interval::Month => day.checked_sub_months(Months::new(count)),
    };
    earlier.map_or(end, |day| zone::day_start(day, end.timezone()))
}

/// Number of periods of a resolved range, without making them.
fn count_periods(range: &DateRange, period: Interval) -> usize {
    if range.from > range.to {
        return 0;
    }
    let (first, last) = (range.from.date_naive(), range.to.date_naive());
    let days = (last - first).num_days();
    let after_first = match period {
        Interval::Minute | Interval::Hour => (range.to - range.from).num_hours(),
        Interval::Day => days,
        Interval::Week => days / 7,
        Interval::Month => {
            let months = |day: chrono::NaiveDate| i64::from(day.year()) * 12 + i64::from(day.month0());
            months(last) - months(first)
        }
    };
    usize::try_from(after_first).unwrap_or(0) + 1
}

/// The periods of a range.
#[derive(Debug, Clone)]
pub(super) struct Periods {
    period: Interval,
    starts: Vec<DateTime<Tz>>,
    search: BucketStarts,
    /// First and last instant, both inclusive.
    bounds: (Micros, Micros),
}

impl Periods {
    /// The periods of a range that [`resolve_range`] resolved; an error if a result with so many columns would have too many
    /// cells.
    pub(super) fn new(range: &DateRange, period: Interval, columns: usize) -> CalcResult<Self> {
        let count = count_periods(range, period);
        if count.saturating_mul(columns) > limits::CELLS {
            return Err(limits::too_many_periods(count, columns));
        }
        let mut starts = Vec::with_capacity(count);
        let mut next = range.from;
        while next <= range.to {
            starts.push(next);
            let after = next_bucket_start(next, period);
            if after <= next {
                break;
            }
            next = after;
        }
        let search = BucketStarts::new(starts.iter().map(DateTime::timestamp_micros).collect());
        let bounds = (range.from.timestamp_micros(), range.to.timestamp_micros());
        Ok(Self { period, starts, search, bounds })
    }

    /// First instant of each period.
    pub(super) fn starts(&self) -> &[DateTime<Tz>] {
        &self.starts
    }

    /// Number of periods.
    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    /// First and last instant, both inclusive; the last is before the first if there are no periods.
    pub(super) fn bounds(&self) -> (Micros, Micros) {
        self.bounds
    }

    /// Finds the period of an instant.
    #[inline]
    pub(super) fn find(&self, time: Micros) -> Option<u32> {
        if time < self.bounds.0 || time > self.bounds.1 {
            return None;
        }
        self.search.find(time).and_then(|index| u32::try_from(index).ok())
    }

    /// The first instant after a period.
    pub(super) fn end_of(&self, period: u32) -> Micros {
        let next = self.search.starts().get(period as usize + 1);
        next.copied().unwrap_or_else(|| self.bounds.1.saturating_add(1))
    }

    /// The label of a period or column by its number.
    pub(super) fn label(&self, number: usize) -> String {
        self.bracket_label(&number.to_string())
    }

    /// The label of a column that counts these distances.
    pub(super) fn bracket_label(&self, distances: &str) -> String {
        format!("{} {distances}", period_name(self.period))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use pennon_filters::dates::WeekStart;
    use pennon_filters::dates::zone::zoned_text;

    use super::*;
    use crate::definitions::Definitions;

    fn project(zone: &str, week_start: WeekStart) -> ProjectContext {
        ProjectContext {
            project_id: "1".to_owned(),
            timezone: zone.parse().unwrap(),
            week_start,
            test_account_filters: Vec::new(),
            path_cleaning_filters: Vec::new(),
            earliest_event: None,
            aggregate_by_distinct_id: false,
            definitions: Definitions::default(),
        }
    }

    fn rounding(interval: Interval) -> Rounding {
        Rounding { interval, exact: false, cut_minutes: false }
    }

    fn starts(
        zone: &str,
        now: &str,
        dates: (Option<&str>, Option<&str>),
        period: (Interval, usize),
    ) -> Vec<String> {
        let project = project(zone, WeekStart::Sunday);
        let now = DateTime::parse_from_rfc3339(now).unwrap().with_timezone(&project.timezone);
        let dates =
            DateSpec { from: dates.0.map(str::to_owned), to: dates.1.map(str::to_owned), explicit: false };
        let range = resolve_range(&dates, (rounding(period.0), period.1), &project, now).unwrap();
        let periods = Periods::new(&range, period.0, 1).unwrap();
        assert_eq!(count_periods(&range, period.0), periods.len());
        periods.starts().iter().map(zoned_text).collect()
    }

    #[test]
    fn the_running_period_is_the_last_one() {
        let now = "2024-05-15T10:30:00Z";
        for (period, expected) in [
            (Interval::Hour, ["2024-05-15T09:00:00Z", "2024-05-15T10:00:00Z"]),
            (Interval::Day, ["2024-05-14T00:00:00Z", "2024-05-15T00:00:00Z"]),
            (Interval::Week, ["2024-05-05T00:00:00Z", "2024-05-12T00:00:00Z"]),
            (Interval::Month, ["2024-04-01T00:00:00Z", "2024-05-01T00:00:00Z"]),
        ] {
            assert_eq!(starts("UTC", now, (None, None), (period, 2)), expected);
        }
        // An absolute end of 00:00 includes the hour that it begins.
        let hours = starts("UTC", now, (None, Some("2024-05-01")), (Interval::Hour, 1));
        assert_eq!(hours, ["2024-05-01T00:00:00Z"]);
        assert!(starts("UTC", now, (Some("2024-05-03"), Some("2024-05-01")), (Interval::Day, 1)).is_empty());
    }

    #[test]
    fn days_follow_the_clock_of_the_zone_and_hours_do_not() {
        let days = starts("US/Pacific", "2021-03-15T12:00:00Z", (None, None), (Interval::Day, 2));
        assert_eq!(days, ["2021-03-14T00:00:00-08:00", "2021-03-15T00:00:00-07:00"]);
        // Clocks go back on 7 November 2021: the day has 25 hours.
        let hours = starts(
            "US/Pacific",
            "2022-01-01T00:00:00Z",
            (Some("2021-11-07"), Some("2021-11-07T23:00:00")),
            (Interval::Hour, 1),
        );
        assert_eq!(hours.len(), 25);
        // There is no midnight on 4 November 2018 in São Paulo.
        let range = (Some("2018-11-03"), Some("2018-11-04"));
        let days = starts("America/Sao_Paulo", "2022-01-01T00:00:00Z", range, (Interval::Day, 1));
        assert_eq!(days, ["2018-11-03T00:00:00-03:00", "2018-11-04T01:00:00-02:00"]);
    }

    #[test]
    fn cells_are_limited_before_periods_are_made() {
        let project = project("UTC", WeekStart::Sunday);
        let now =
            DateTime::parse_from_rfc3339("2024-05-15T10:30:00Z").unwrap().with_timezone(&chrono_tz::UTC);
        let hours = |from: &str, columns| {
            let dates = DateSpec {
                from: Some(from.to_owned()),
                to: Some("2024-05-15T09:00:00".to_owned()),
                explicit: false,
            };
            let range = resolve_range(&dates, (rounding(Interval::Hour), 1), &project, now).unwrap();
            Periods::new(&range, Interval::Hour, columns).map(|periods| periods.len())
        };
        // 1,000 hours with 100 columns are the limit.
        assert_eq!(hours("2024-04-03T18:00:00", 100), Ok(1_000));
        let error = hours("2024-04-03T17:00:00", 100).unwrap_err();
        assert!(error.detail.contains("1001 periods") && error.detail.contains("at most 1000"), "{error}");
        assert!(hours("0001-01-01", 1).is_err());
    }
}
