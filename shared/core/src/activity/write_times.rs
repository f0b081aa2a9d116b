//! The instant that a write is stored with: never before what its log has.
//!
//! A machine's clock can be set back, by hand or by its time service. An entry of the log would then sort before older
//! ones, and pages of the log would be wrong. So a write takes the later of the clock and the newest instant that the
//! logs have ([`never_before`]).
//!
//! Must stay true: the newest instant is read from a log once per process, beside what authorizes the
//! request; instants that this process handed out since are remembered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, NaiveDateTime, Utc};
use futures::future::try_join_all;

use crate::clock::never_before;
use crate::store::keys::{self, ProjectId};
use crate::store::{End, Query, Span, StoreError, Table};

/// The logs that a request with this permission may write to.
const LOGS: [(&str, &[&str]); 6] = [
    ("action:write", &["Action"]),
    ("cohort:write", &["Cohort"]),
    // A dashboard may go with its insights.
    ("dashboard:write", &["Dashboard", "Insight"]),
    ("feature_flag:write", &["FeatureFlag"]),
    ("insight:write", &["Insight"]),
    ("sharing_configuration:write", &["Insight"]),
];
/// Characters of the instant that a log's sort keys begin with.
const INSTANT_CHARS: usize = "2026-01-05T10:00:00.000000".len();
/// Most logs whose newest instants a process remembers.
const LOGS_MAX: usize = 50_000;

/// The logs that a request with the permission `name` may write to; none for one that only reads.
pub(crate) fn logs_of(name: &str) -> &'static [&'static str] {
    LOGS.iter().find(|(known, _)| *known == name).map_or(&[], |(_, logs)| logs)
}

/// The newest instant of each log, as far as this process knows.
#[derive(Debug, Clone, Default)]
pub struct WriteTimes(Arc<Mutex<HashMap<Log, DateTime<Utc>>>>);

/// A project, and the scope of its log.
type Log = (ProjectId, &'static str);

impl WriteTimes {
    /// Reads the newest instants of `logs`, unless they are known. `now` is the request's.
    pub(crate) async fn load(
        &self,
        records: &Table,
        project: ProjectId,
        logs: &[&'static str],
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let unknown = logs.iter().copied().filter(|log| self.newest((project, *log)).is_none());
        let found = unknown.map(async |log| {
            let newest = newest_of(records, project, log, now).await?;
            self.raise((project, log), newest.unwrap_or(DateTime::UNIX_EPOCH));
            Ok::<_, StoreError>(())
        });
        try_join_all(found).await?;
        Ok(())
    }

    /// The instant of a write to `logs` at `now`.
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

/// The instant of a write to `log` at `now` that no request makes: read from the log as it is.
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

/// The newest instant of one log. Where the newest entry is of an earlier month than `now`, none is needed.
async fn newest_of(
    records: &Table,
    project: ProjectId,
    scope: &str,
    now: DateTime<Utc>,
) -> Result<Option<DateTime<Utc>>, StoreError> {
    let month = now.format("%Y-%m").to_string();
    let newest_in = async |month: &str| {
        let span = Span::partition(keys::activity_month_pk(project, scope, month));
        let newest = records.keys(&span, End::Last, 0, 1).await?.pop();
        Ok::<_, StoreError>(newest.and_then(|key| instant_of(&key.sk)))
    };
    let days = Query::partition(keys::activity_days_pk(project, scope)).descending().limit(1);
    let (newest, days) = tokio::try_join!(newest_in(&month), records.query(days))?;
    match days.first().and_then(|day| day.key.sk.get(..keys::MONTH_CHARS)) {
        // The clock went back over the end of a month.
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
    fn instants_handed_out_never_go_back() {
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
