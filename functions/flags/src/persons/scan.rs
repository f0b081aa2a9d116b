//! Scans all persons of a project.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::store::keys::ProjectId;
use pennon_eventstore::People;
use pennon_eventstore::cohort_lists::CohortList;
use pennon_filters::CancellationToken;
use pennon_filters::body::json::Object;
use pennon_flag_rules::relations::cohort::FlagCohort;
use serde_json::Value;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::event_store_error;
use crate::Flags;
use crate::store::record_id;

/// Time limit of a scan and of an evaluation; API Gateway gives up a little later.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(25);

/// Concurrent scans per process: each loads all persons into memory.
const CONCURRENT_SCANS: usize = 1;

/// Permits for scans over all persons.
#[derive(Debug, Clone)]
pub struct PersonScanPermits(Arc<Semaphore>);

impl Default for PersonScanPermits {
    fn default() -> PersonScanPermits {
        PersonScanPermits(Arc::new(Semaphore::new(CONCURRENT_SCANS)))
    }
}

/// What a scan needs of each person.
pub struct PersonScanRequest {
    /// The project.
    pub project: ProjectId,
    /// Names of the properties to load.
    pub keys: BTreeSet<String>,
    /// Member lists of the static cohorts to check.
    pub cohort_lists: BTreeMap<i64, CohortList>,
}

/// A person in a scan.
pub struct ScannedPerson<'a> {
    /// The first distinct id.
    pub distinct_id: &'a str,
    /// The requested properties.
    pub properties: &'a Object,
    /// The requested static cohorts that contain the person.
    pub static_cohorts: &'a BTreeSet<i64>,
}

/// The loaded persons of a project.
pub struct PersonsWithCohorts {
    people: People,
    /// Members of each static cohort.
    members: Vec<(i64, HashSet<Uuid>)>,
    deadline: Instant,
    cancellation: CancellationToken,
}

impl PersonsWithCohorts {
    /// The number of persons.
    pub fn count(&self) -> u64 {
        self.people.count()
    }

    /// Calls `visit` for every person. Returns false when the deadline passed or the request was cancelled before the
    /// end.
    pub fn for_each(self, mut visit: impl FnMut(&ScannedPerson<'_>)) -> bool {
        let PersonsWithCohorts { people, members, deadline, cancellation } = self;
        let mut is_complete = true;
        let mut static_cohorts = BTreeSet::new();
        people.each(|person, distinct_id, properties| {
            static_cohorts.clear();
            let cohorts = members.iter().filter(|(_, members)| members.contains(&person));
            static_cohorts.extend(cohorts.map(|(cohort, _)| *cohort));
            visit(&ScannedPerson { distinct_id, properties, static_cohorts: &static_cohorts });
            is_complete = !cancellation.is_cancelled() && Instant::now() < deadline;
            if is_complete { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        is_complete
    }
}

/// Runs `visit` over all persons on a blocking thread. 400 when there are too many persons; 503 when time runs out.
/// Then, and when the request is dropped, `cancellation` ends the work of `visit`.
///
/// `visit` returns `None` when [`PersonsWithCohorts::for_each`] was incomplete.
pub async fn scan_persons_with_cohorts<T: Send + 'static>(
    flags: &Flags,
    request: PersonScanRequest,
    cancellation: CancellationToken,
    visit: impl FnOnce(PersonsWithCohorts) -> Option<T> + Send + 'static,
) -> ApiResult<T> {
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    let _cancel_on_drop = cancellation.cancel_on_drop();
    let scanned = async {
        let permit =
            flags.scan_permits.0.clone().acquire_owned().await.map_err(|e| ApiError::internal(&e))?;
        let people = flags.events.people(request.project, &request.keys).await.map_err(event_store_error)?;
        let records = &flags.app.store.records;
        let mut members = Vec::with_capacity(request.cohort_lists.len());
        for (cohort, cohort_list) in &request.cohort_lists {
            let member_ids = cohort_list
                .members(records, request.project, record_id(*cohort))
                .await
                .map_err(event_store_error)?;
            members.push((*cohort, member_ids.into_iter().map(|id| people.person(id)).collect()));
        }
        let scan = PersonsWithCohorts { people, members, deadline, cancellation };
        let result = tokio::task::spawn_blocking(move || {
            let result = visit(scan);
            drop(permit);
            result
        });
        let result = result.await.map_err(|e| ApiError::internal(&e))?;
        result.ok_or_else(|| ApiError::busy(1))
    };
    tokio::time::timeout(REQUEST_TIMEOUT, scanned).await.unwrap_or_else(|_| Err(ApiError::busy(1)))
}

/// The names of all properties that `filters` may read: the value of `key` at any depth.
pub fn property_keys<'a>(filters: impl IntoIterator<Item = &'a Value>) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let mut pending = filters.into_iter().collect::<Vec<_>>();
    while let Some(value) = pending.pop() {
        match value {
            Value::Array(items) => pending.extend(items),
            Value::Object(fields) => {
                match fields.get("key") {
                    Some(Value::String(key)) => drop(keys.insert(key.clone())),
                    Some(Value::Number(key)) => drop(keys.insert(key.to_string())),
                    _ => {}
                }
                pending.extend(fields.values());
            }
            _ => {}
        }
    }
    keys
}

/// The criteria of cohorts, as input of [`property_keys`].
pub fn cohort_criteria<'a>(
    cohorts: impl IntoIterator<Item = &'a FlagCohort>,
) -> impl Iterator<Item = &'a Value> {
    cohorts.into_iter().map(|cohort| &cohort.filters)
}
