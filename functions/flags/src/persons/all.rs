//! Going through all persons of a project.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::store::keys::ProjectId;
use pennon_engine::CancellationToken;
use pennon_engine::flag::cohort::Cohort;
use pennon_engine::flag::json::Object;
use pennon_eventstore::People;
use pennon_eventstore::members::Roster;
use serde_json::Value;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::refused;
use crate::Flags;
use crate::store::number;

/// Time for it; a gateway gives up a little later.
pub const TIME: Duration = Duration::from_secs(25);

/// How many requests of a process go through all persons at once: each takes memory for all of them.
const AT_ONCE: usize = 1;

/// Turns at going through all persons.
#[derive(Debug, Clone)]
pub struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Turns {
        Turns(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

/// What is asked about each person.
pub struct Question {
    /// The project.
    pub project: ProjectId,
    /// Names of the properties that matter.
    pub keys: BTreeSet<String>,
    /// The lists of the static cohorts that matter.
    pub rosters: BTreeMap<i64, Roster>,
}

/// A person as [`through`] shows it.
pub struct Shown<'a> {
    /// Its first distinct id.
    pub distinct_id: &'a str,
    /// Those of its properties that matter.
    pub properties: &'a Object,
    /// Those of the static cohorts that matter of which it is a member.
    pub static_cohorts: &'a BTreeSet<i64>,
}

/// The persons of a project, ready to be gone through.
pub struct Everybody {
    people: People,
    /// Who is in each static cohort.
    members: Vec<(i64, HashSet<Uuid>)>,
    deadline: Instant,
    cancellation: CancellationToken,
}

impl Everybody {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.people.count()
    }

    /// Shows every person. False when time ran out, or the request was given up, before the end.
    pub fn each(self, mut each: impl FnMut(&Shown<'_>)) -> bool {
        let Everybody { people, members, deadline, cancellation } = self;
        let mut in_time = true;
        let mut static_cohorts = BTreeSet::new();
        people.each(|person, distinct_id, properties| {
            static_cohorts.clear();
            let of = members.iter().filter(|(_, members)| members.contains(&person));
            static_cohorts.extend(of.map(|(cohort, _)| *cohort));
            each(&Shown { distinct_id, properties, static_cohorts: &static_cohorts });
            in_time = !cancellation.is_cancelled() && Instant::now() < deadline;
            if in_time { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        in_time
    }
}

/// Lets `judge` go through all persons, on a thread that may be busy for long. 400 when there are more than can be; 503
/// when time runs out. Then, and when the request is dropped, `cancellation` ends what `judge` does.
///
/// `judge` gives none when [`Everybody::each`] did not come to its end.
pub async fn through<T: Send + 'static>(
    flags: &Flags,
    question: Question,
    cancellation: CancellationToken,
    judge: impl FnOnce(Everybody) -> Option<T> + Send + 'static,
) -> ApiResult<T> {
    let deadline = Instant::now() + TIME;
    let _cancel_on_drop = cancellation.cancel_on_drop();
    let all = async {
        let turn = flags.turns.0.clone().acquire_owned().await.map_err(|e| ApiError::internal(&e))?;
        let people = flags.events.people(question.project, &question.keys).await.map_err(refused)?;
        let records = &flags.app.store.records;
        let mut members = Vec::with_capacity(question.rosters.len());
        for (cohort, roster) in &question.rosters {
            let listed = roster.members(records, question.project, number(*cohort)).await.map_err(refused)?;
            members.push((*cohort, listed.into_iter().map(|id| people.person(id)).collect()));
        }
        let everybody = Everybody { people, members, deadline, cancellation };
        let judged = tokio::task::spawn_blocking(move || {
            let judged = judge(everybody);
            drop(turn);
            judged
        });
        let judged = judged.await.map_err(|e| ApiError::internal(&e))?;
        judged.ok_or_else(|| ApiError::busy(1))
    };
    tokio::time::timeout(TIME, all).await.unwrap_or_else(|_| Err(ApiError::busy(1)))
}

/// The names of all properties that `filters` may ask for: whatever stands under `key` anywhere in them.
pub fn property_keys<'a>(filters: impl IntoIterator<Item = &'a Value>) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let mut open = filters.into_iter().collect::<Vec<_>>();
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => {
                match fields.get("key") {
                    Some(Value::String(key)) => drop(keys.insert(key.clone())),
                    Some(Value::Number(key)) => drop(keys.insert(key.to_string())),
                    _ => {}
                }
                open.extend(fields.values());
            }
            _ => {}
        }
    }
    keys
}

/// The criteria of cohorts, for [`property_keys`].
pub fn criteria<'a>(cohorts: impl IntoIterator<Item = &'a Cohort>) -> impl Iterator<Item = &'a Value> {
    cohorts.into_iter().map(|cohort| &cohort.filters)
}
