//! How long a stored result may be shown, as pure functions of the question and the clock.

use chrono::{DateTime, Duration, Utc};

use super::{Display, Query, TrendsQuery};
use crate::dates::Interval;
use crate::dates::range::{DateRange, Rounding};
use crate::error::CalcResult;
use crate::plan::ProjectContext;

/// How old a stored result is, measured by the question's interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Within the first limit: shown without a thought.
    Fresh,
    /// Between the limits.
    Somewhat,
    /// Beyond the second limit.
    Stale,
}

/// A range that ended this long before the calculation has seen all it will see.
const SETTLED_AFTER: Duration = Duration::seconds(10);

impl Query {
    /// The range that the question means at an instant.
    pub fn range(&self, project: &ProjectContext, now: DateTime<Utc>) -> CalcResult<DateRange> {
        let common = self.common();
        let rounding = match self {
            Self::Trends(trends) => Self::trend_rounding(trends),
            Self::Funnels(_) | Self::Correlation(_) => {
                Rounding { interval: common.interval, exact: false, cut_minutes: true }
            }
        };
        common.dates.resolve(rounding, now.with_timezone(&project.timezone), project.earliest_event)
    }

    /// How a trend rounds its range: a total by days, a single number not at all.
    pub(crate) fn trend_rounding(query: &TrendsQuery) -> Rounding {
        Rounding {
            interval: if query.display.is_total() { Interval::Day } else { query.common.interval },
            exact: query.display == Display::BoldNumber,
            cut_minutes: false,
        }
    }
}

/// The first and the second limit of an interval.
fn limits(interval: Interval) -> (Duration, Duration) {
    match interval {
        Interval::Minute => (Duration::minutes(5), Duration::minutes(15)),
        Interval::Hour => (Duration::hours(1), Duration::hours(2)),
        Interval::Day => (Duration::hours(6), Duration::hours(12)),
        Interval::Week => (Duration::days(1), Duration::days(1)),
        Interval::Month => (Duration::days(2), Duration::days(2)),
    }
}

/// How fresh a result of `last_refresh` is. One whose range lies wholly before its calculation stays fresh, as long as
/// the question still means that range: `-20d` to `-10d` moves with the days.
pub fn freshness(
    query: &Query,
    project: &ProjectContext,
    last_refresh: DateTime<Utc>,
    now: DateTime<Utc>,
) -> CalcResult<Freshness> {
    let range = query.range(project, now)?;
    if range.to < last_refresh - SETTLED_AFTER && query.range(project, last_refresh)? == range {
        return Ok(Freshness::Fresh);
    }
    let age = now - last_refresh;
    let (first, second) = limits(query.common().interval);
    Ok(if age > second {
        Freshness::Stale
    } else if age > first {
        Freshness::Somewhat
    } else {
        Freshness::Fresh
    })
}

/// When a result begins to age.
pub fn cache_target_age(query: &Query, last_refresh: DateTime<Utc>) -> DateTime<Utc> {
    last_refresh + limits(query.common().interval).0
}

/// When a client should ask for a recalculation again: soon for hours and minutes and for ranges of at most seven days
/// (rounded up), else later. Nothing enforces it.
pub fn next_allowed_client_refresh(
    query: &Query,
    project: &ProjectContext,
    last_refresh: DateTime<Utc>,
    now: DateTime<Utc>,
) -> CalcResult<DateTime<Utc>> {
    let range = query.range(project, now)?;
    let short = range.to - range.from <= Duration::days(7);
    let minutes = if short || query.common().interval.is_clock() { 3 } else { 15 };
    Ok(last_refresh + Duration::minutes(minutes))
}
