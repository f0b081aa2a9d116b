//! How long a cached result stays fresh, as pure functions of the query and the clock.

use chrono::{DateTime, Duration, Utc};
use pennon_filters::dates::Interval;
use pennon_filters::error::CalcResult;

use crate::kinds::Query;
use crate::project::ProjectContext;

/// Age class of a cached result, relative to the query's interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Younger than the first limit.
    Fresh,
    /// Between the limits.
    SomewhatStale,
    /// Older than the second limit.
    Stale,
}

/// A date range that ended this long before the calculation is complete: no later event changes its result.
const RANGE_COMPLETE_AFTER: Duration = Duration::seconds(10);

/// The age limits for an interval: fresh up to the first, very stale beyond the second.
fn age_limits(interval: Interval) -> (Duration, Duration) {
    match interval {
        Interval::Minute => (Duration::minutes(5), Duration::minutes(15)),
        Interval::Hour => (Duration::hours(1), Duration::hours(2)),
        Interval::Day => (Duration::hours(6), Duration::hours(12)),
        Interval::Week => (Duration::days(1), Duration::days(1)),
        Interval::Month => (Duration::days(2), Duration::days(2)),
    }
}

/// Classifies the age of a result that was calculated at `last_refresh`. A result whose date range ended before its
/// calculation stays fresh while the query still resolves to that range; `-20d` to `-10d` moves every day.
pub fn freshness(
    query: &Query,
    project: &ProjectContext,
    last_refresh: DateTime<Utc>,
    now: DateTime<Utc>,
) -> CalcResult<Freshness> {
    let range = query.range(project, now)?;
    if range.to < last_refresh - RANGE_COMPLETE_AFTER && query.range(project, last_refresh)? == range {
        return Ok(Freshness::Fresh);
    }
    let age = now - last_refresh;
    let (first, second) = age_limits(query.refresh_interval());
    Ok(if age > second {
        Freshness::Stale
    } else if age > first {
        Freshness::SomewhatStale
    } else {
        Freshness::Fresh
    })
}

/// When a result stops being fresh.
pub fn cache_target_age(query: &Query, last_refresh: DateTime<Utc>) -> DateTime<Utc> {
    last_refresh + age_limits(query.refresh_interval()).0
}

/// When a client should request a recalculation again: 3 minutes after the last one for hours, minutes and ranges of at
/// most 7 days (rounded up), else 15 minutes. Advisory; the server does not enforce it.
pub fn next_allowed_client_refresh(
    query: &Query,
    project: &ProjectContext,
    last_refresh: DateTime<Utc>,
    now: DateTime<Utc>,
) -> CalcResult<DateTime<Utc>> {
    let range = query.range(project, now)?;
    let short = range.to - range.from <= Duration::days(7);
    let minutes = if short || query.refresh_interval().is_clock() { 3 } else { 15 };
    Ok(last_refresh + Duration::minutes(minutes))
}
