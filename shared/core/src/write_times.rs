//! The instant of a write: never before the newest entry of its activity log.
//!
//! A clock can be set back, by hand or by NTP. A new entry would then sort before older ones, and pages of the log would be
//! wrong. So a write takes the later of the clock and the newest instant of its logs ([`never_before`]).
//!
//! Must stay true: the newest instant of a log is read once per process, concurrently with authorization; instants that this
//! process assigned since are cached.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, NaiveDateTime, Utc};
use futures::future::try_join_all;

use crate::clock::never_before;
use crate::store::keys::{self, ProjectId};
use crate::store::{KeyRange, PartitionQuery, RangeEnd, StoreError, Table};

/// The logs that a request with this scope may write to.
const LOGS: [(&str, &[&str]); 6] = [
    ("action:write", &["Action"]),
    ("cohort:write", &["Cohort"]),
    // Deleting a dashboard may delete its insights.
    ("dashboard:write", &["Dashboard", "Insight"]),
    ("feature_flag:write", &["FeatureFlag"]),
    ("insight:write", &["Insight"]),
    ("sharing_configuration:write", &["Dashboard", "Insight"]),
];
/// Length of the instant at the start of a log's sort keys.
const INSTANT_CHARS: usize = "2026-01-05T10:00:00.000000".len();
/// Maximum number of logs in the cache.
const LOGS_MAX: usize = 50_000;

/// The scopes of all activity logs.
pub fn activity_log_scopes() -> BTreeSet<&'static str> {
    LOGS.iter().flat_map(|(_, logs)| logs.iter().copied()).collect()
}

/// The logs that a request with this scope may write to; none for a read scope.
pub(crate) fn logs_of(name: &str) -> &'static [&'static str] {
    LOGS.iter().find(|(known, _)| *known == name).map_or(&[], |(_, logs)| logs)
}

/// A cache of the newest instant of each log.
#[derive(Debug, Clone, Default)]
pub struct WriteTimes(Arc<Mutex<HashMap<Log, DateTime<Utc>>>>);

/// A project, and the scope of its log.
type Log = (ProjectId, &'static str);

impl WriteTimes {
    /// Reads the newest instants of `logs`, unless they are cached. `now` is the instant of the request.
    pub(crate) async fn load(
        &self,
        records: &Table,
        project: ProjectId,
        logs: &[&'static str],
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let unknown = logs.iter().copied().filter(|log| self.newest((project, *log)).is_none());
        let loads = unknown.map(async |log| {
            let newest = newest_of(records, project, log, now).await?;
            self.raise((project, log), newest.unwrap_or(DateTime::UNIX_EPOCH));
            Ok::<_, StoreError>(())
        });
        try_join_all(loads).await?;
        Ok(())
    }

    /// Assigns the instant of a write to `logs` at `now`.
    pub fn next(&self, project: ProjectId, logs: &[&'static str], now: DateTime<Utc>) -> DateTime<Utc> {
        let newest = logs.iter().filter_map(|log| self.newest((project, *log))).max();
        let at = newest.map_or(now, |newest| never_before(now, newest));
        logs.iter().for_each(|log| self.raise((project, *log), at));
        at
    }

    fn newest(&self, log: Log) -> Option<DateTime<Utc>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&log).copied()
    }

    fn raise(&self, log: Log, at: DateTime<Utc>) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if times.len() >= LOGS_MAX && !times.contains_key(&log) {
            times.clear();
        }
        let newest = times.entry(log).or_insert(at);
        *newest = at.max(*newest);
    }
}

/// The instant of a write to `log` at `now` outside of a request, without a cache.
pub async fn write_time(
    records: &Table,
    project: ProjectId,
    log: &'static str,
    now: DateTime<Utc>,
) -> Result<DateTime<Utc>, StoreError> {
    let times = WriteTimes::default();
    times.load(records, project, &[log], now).await?;
    Ok(times.next(project, &[log], now))
}

/// The newest instant of a log; `None` if its newest entry is in an earlier month than `now`.
async fn newest_of(
    records: &Table,
    project: ProjectId,
    scope: &str,
    now: DateTime<Utc>,
) -> Result<Option<DateTime<Utc>>, StoreError> {
    let month = now.format("%Y-%m").to_string();
    let newest_in = async |month: &str| {
        let range = KeyRange::partition(keys::activity_month_pk(project, scope, month));
        let newest = records.keys(&range, RangeEnd::Last, 0, 1).await?.pop();
        Ok::<_, StoreError>(newest.and_then(|key| instant_of(&key.sk)))
    };
    let days = PartitionQuery::partition(keys::activity_days_pk(project, scope)).descending().limit(1);
    let (newest, days) = tokio::try_join!(newest_in(&month), records.query(days))?;
    match days.first().and_then(|day| day.key.sk.get(..keys::MONTH_CHARS)) {
        // The clock went back across the start of a month.
        Some(later) if later > month.as_str() => newest_in(later).await,
        _ => Ok(newest),
    }
}

/// The instant in the sort key of an entry.
fn instant_of(sk: &str) -> Option<DateTime<Utc>> {
    let text = sk.get(..INSTANT_CHARS)?;
    NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.6f").ok().map(|at| at.and_utc())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn assigned_instants_never_go_back() {
        let at = |text: &str| DateTime::parse_from_rfc3339(text).unwrap().to_utc();
        let times = WriteTimes::default();
        let given =
            ["2026-01-05T10:00:00Z", "2026-01-05T09:00:00Z", "2026-01-05T09:30:00Z", "2026-01-05T11:00:00Z"];
        let got = given.map(|now| crate::clock::timestamp(times.next(1, &["Insight"], at(now))));
        let expected = [
            "2026-01-05T10:00:00Z",
            "2026-01-05T10:00:00.000001Z",
            "2026-01-05T10:00:00.000002Z",
            "2026-01-05T11:00:00Z",
        ];
        assert_eq!(got, expected);
        assert_eq!(times.next(2, &["Insight"], at(given[1])), at(given[1]), "each project has its own");
        assert_eq!(times.next(1, &["Cohort"], at(given[1])), at(given[1]), "each log has its own");
        let both = crate::clock::timestamp(times.next(1, &["Cohort", "Insight"], at(given[1])));
        assert_eq!(both, "2026-01-05T11:00:00.000001Z", "the later of both");
        assert_eq!(instant_of("2026-01-05T10:00:00.000001#id"), Some(at("2026-01-05T10:00:00.000001Z")));
        assert_eq!(instant_of("2026-01"), None);
    }
}
