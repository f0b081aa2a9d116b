//! Starting calculations in the background.
//!
//! Must stay true: what a request is told was started has its job row; many are started in few transactions; two who
//! start the same at once start it once.

use pennon_core::clock::Clock;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::ids::new_uuid;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Guard, Item, Key, StoreError, Write, back_off_after_conflict};
use uuid::Uuid;

use super::state::{Planned, State, Wish};
use super::status::Status;
use super::{Job, KEPT_SECONDS, Named, Target, Tracked};
use crate::calculator::{Asked, Calculator};
use crate::source::Source;

/// Starts that share a transaction: two rows each, and one for the caller's name.
const STARTS_AT_ONCE: usize = 40;
/// Bytes of questions in one transaction, before they are packed.
const BYTES_AT_ONCE: usize = 2_000_000;
/// How often a start that others overtook is planned again.
const TRIES: u32 = 20;

/// A calculation that is wanted.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    /// The question.
    pub asked: &'a Asked,
    /// What was read of its calculation.
    pub tracked: Option<&'a Tracked>,
    /// How.
    pub wish: Wish,
}

/// When the store may forget a row of now.
pub(super) fn forgotten_at() -> i64 {
    // The store removes items by the machine's clock, whatever clock the service is told to have.
    Clock::Running.now(None).timestamp() + KEPT_SECONDS
}

/// The row of a state.
pub(super) fn row(
    project: ProjectId,
    cache_key: &str,
    state: &State,
    version: u64,
) -> Result<Item, StoreError> {
    let item = Item::new(keys::query_state(project, cache_key), state)?;
    Ok(item.with_version(version).expiring(forgotten_at()))
}

/// The condition on a row that was read, and the version that it gets.
pub(super) fn next(version: Option<u64>) -> (Guard, u64) {
    match version {
        Some(version) => (Guard::Version(version), version + 1),
        // Never a number that the row had before it went: somebody may still hold that.
        None => (Guard::Absent, u64::try_from(Clock::Running.now(None).timestamp_micros()).unwrap_or(1)),
    }
}

/// What a transaction writes, and what the callers are told.
#[derive(Default)]
struct Batch {
    writes: Vec<Write>,
    told: Vec<Told>,
}

/// Which calculation an asker waits for.
struct Told {
    state: State,
    generation: Uuid,
    /// By which name, where it got one.
    id: Option<String>,
}

impl Calculator {
    /// Starts `wanted`, which one caller asks for; gives what is told of each, in their order.
    pub(crate) async fn start_all(
        &self,
        project: ProjectId,
        wanted: &[Wanted<'_>],
    ) -> ApiResult<Vec<Status>> {
        let parts = parts(wanted);
        let mut naming = Naming::default();
        let mut told = Vec::with_capacity(wanted.len());
        for (at, part) in parts.iter().enumerate() {
            let ends = at + 1 == parts.len();
            for (wanted, one) in part.iter().zip(self.start_some(project, part, &mut naming, ends).await?) {
                told.push(one.status(wanted));
            }
        }
        Ok(told)
    }

    /// Starts some in one transaction. The caller's name, if there is one, is written with the last of them.
    async fn start_some(
        &self,
        project: ProjectId,
        wanted: &[Wanted<'_>],
        naming: &mut Naming,
        ends: bool,
    ) -> ApiResult<Vec<Told>> {
        let mut tracked: Vec<Option<Tracked>> = wanted.iter().map(|one| one.tracked.cloned()).collect();
        let keys: Vec<Key> = wanted.iter().map(|one| keys::query_state(project, &one.asked.key)).collect();
        for tried in 0..TRIES {
            let mut batch = Batch::default();
            let mut names = naming.clone();
            for (one, tracked) in wanted.iter().zip(&tracked) {
                batch.add(project, one, tracked.as_ref())?;
                names.named.targets.extend(batch.told.last().and_then(|told| told.own_target(one)));
            }
            names.writes |= !batch.writes.is_empty();
            if ends && let Some(first) = wanted.first().filter(|_| names.is_due()) {
                let item = Item::new(keys::query_name(project, &first.wish.asker.id), &names.named)?;
                batch.writes.push(Write::Put(item.expiring(forgotten_at()), Guard::None));
            }
            let done = match batch.writes.is_empty() {
                true => Ok(()),
                false => self.records.transact(batch.writes).await,
            };
            match done {
                Ok(()) => {
                    *naming = names;
                    return Ok(batch.told);
                }
                Err(StoreError::Condition { .. }) => {
                    back_off_after_conflict(tried + 1).await;
                    let items = self.records.batch_get(&keys).await?;
                    tracked = items.iter().map(|item| Tracked::read(item.as_ref())).collect();
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(ApiError::busy(1))
    }
}

/// What the caller's name comes to stand for.
#[derive(Debug, Clone, Default)]
struct Naming {
    named: Named,
    /// Whether anything else is written; where all is known, so is the name.
    writes: bool,
}

impl Naming {
    fn is_due(&self) -> bool {
        self.writes && !self.named.targets.is_empty()
    }
}

impl Batch {
    /// Takes in what `wanted` comes to.
    fn add(
        &mut self,
        project: ProjectId,
        wanted: &Wanted<'_>,
        tracked: Option<&Tracked>,
    ) -> Result<(), StoreError> {
        let generation = new_uuid();
        let (guard, version) = next(tracked.map(|it| it.version));
        let cache_key = &wanted.asked.key;
        let planned = State::planned(tracked.map(|it| &it.state), &wanted.wish, generation, cache_key);
        let (state, id) = match planned {
            Planned::Known(state) | Planned::Joined(state) => (state, None),
            Planned::New(state) => {
                self.writes.push(Write::Put(job(project, wanted.asked, state.generation)?, Guard::Absent));
                (state, None)
            }
            Planned::Waits(state, id) => (state, Some(id)),
        };
        let waits_for = state.next.as_ref().filter(|_| id.is_some());
        let generation = waits_for.map_or(state.generation, |next| next.generation);
        if tracked.is_some_and(|it| it.state == state) {
            // Who waits already has a name too.
            self.told.push(Told { state, generation, id });
            return Ok(());
        }
        self.writes.push(Write::Put(row(project, cache_key, &state, version)?, guard));
        let told = Told { state, generation, id };
        // The caller's own name is written once for all that it asks for.
        if let Some(id) = told.id.as_ref().filter(|id| **id != wanted.wish.asker.id) {
            let named = Named { targets: vec![told.target(wanted)] };
            let named = Item::new(keys::query_name(project, id), &named)?;
            self.writes.push(Write::Put(named.expiring(forgotten_at()), Guard::None));
        }
        self.told.push(told);
        Ok(())
    }
}

impl Told {
    /// What the asker is told.
    fn status(&self, wanted: &Wanted<'_>) -> Status {
        let wish = &wanted.wish;
        let id = || self.state.id_for(&wish.asker.id, &wanted.asked.key);
        let seen = self.state.seen_as(self.generation, wish.now);
        Status::of(self.id.clone().unwrap_or_else(id), seen.unwrap_or_else(|| self.state.seen()))
    }

    /// What the caller's own name stands for; a cache key stands for itself.
    fn own_target(&self, wanted: &Wanted<'_>) -> Option<Target> {
        (wanted.wish.asker.id != wanted.asked.key).then(|| self.target(wanted))
    }

    /// What the name stands for by which it is told of.
    fn target(&self, wanted: &Wanted<'_>) -> Target {
        let asker = &wanted.wish.asker;
        Target {
            cache_key: wanted.asked.key.clone(),
            generation: self.generation,
            insight_id: asker.insight_id,
            dashboard_id: asker.dashboard_id,
        }
    }
}

/// The row of a job.
fn job(project: ProjectId, asked: &Asked, generation: Uuid) -> Result<Item, StoreError> {
    let Some(source) = asked.source.clone() else {
        return Err(StoreError::Failed("a question that cannot be read again".to_owned()));
    };
    let job = Job {
        project,
        source,
        purpose: asked.purpose,
        invalidation: asked.invalidation.clone(),
        cache_key: asked.key.clone(),
    };
    job_row(generation, &job)
}

/// The row of the job for another generation.
pub(super) fn job_row(generation: Uuid, job: &Job) -> Result<Item, StoreError> {
    Ok(Item::new(keys::job(generation), job)?.expiring(forgotten_at()))
}

/// `wanted` in parts that fit into a transaction each.
fn parts<'s, 'a>(wanted: &'s [Wanted<'a>]) -> Vec<&'s [Wanted<'a>]> {
    let (mut parts, mut begin, mut bytes) = (Vec::new(), 0, 0);
    for (at, one) in wanted.iter().enumerate() {
        let own = one.asked.source.as_ref().map_or(0, length);
        if at > begin && (at - begin == STARTS_AT_ONCE || bytes + own > BYTES_AT_ONCE) {
            parts.push(&wanted[begin..at]);
            (begin, bytes) = (at, 0);
        }
        bytes += own;
    }
    if begin < wanted.len() {
        parts.push(&wanted[begin..]);
    }
    parts
}

fn length(source: &Source) -> usize {
    serde_json::to_string(source).map_or(0, |text| text.len())
}
