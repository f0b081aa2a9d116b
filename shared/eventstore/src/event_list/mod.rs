//! Lists the events of a project, newest first; and exports all of them.
//!
//! Segments are sorted by person, not by time, so the newest events are anywhere in them. Known without reading
//! events is an upper bound of the time of each part: of a segment from the manifest, of a run from the footer,
//! of a page of 2,048 times from the page index. [`candidates`] reads times and arrival order of the parts with
//! the latest bounds, until every unread part is older than the events found; [`rows`] decodes only these
//! events. So a page of the newest events opens only segments that overlap its time range, and reads only the
//! pages of its events: at worst, per event, one page of 8,192 rows of each column, and its dictionary. Blocks
//! are read completely, once.
//!
//! Must stay true: events come in descending order of [`EventKey`], each once, whatever is captured, compacted
//! or merged between two pages; exactly the events that a scan counts are listed. Events are passed on by blocking
//! threads, because filters of the caller may take long. The public interface is [`EventList`].

mod candidates;
mod export;
mod rows;

pub use export::{EventSink, StoredEvent};

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use pennon_analytics::scan::{Micros, Seq};
use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use crate::blocks::{BlockFilter, BlockLog};
use crate::error::EventStoreError;
use crate::event::Event;
use crate::memory::{DecodeBudget, MemoryLease, Purpose, QueryMemory};
use crate::person_ids::derive_person_id;
use crate::segments::{DuplicateFinder, SegmentStore};
use crate::snapshots::SnapshotReader;
use candidates::Candidates;

/// Events of the first batch; doubled each time, up to [`BATCH_MAX`].
const BATCH: usize = 100;
/// Most events of a batch.
const BATCH_MAX: usize = 1600;

/// Sort key of an event in its project: time, arrival, uuid. It never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventKey {
    /// When it happened.
    pub time: Micros,
    /// Its arrival order.
    pub seq: Seq,
    /// Its uuid.
    pub uuid: Uuid,
}

/// Filter of a list; all conditions must hold.
#[derive(Debug, Clone)]
pub struct EventListFilter {
    /// Event names; none means any.
    pub names: Option<BTreeSet<String>>,
    /// Later than this.
    pub after: Micros,
    /// Earlier than this.
    pub before: Micros,
    /// Events of the person with this id, or of one it was merged into.
    pub person: Option<Uuid>,
    /// With this distinct id.
    pub distinct_id: Option<String>,
    /// After this key in the list.
    pub below: Option<EventKey>,
}

impl Default for EventListFilter {
    fn default() -> EventListFilter {
        EventListFilter {
            names: None,
            after: Micros::MIN,
            before: Micros::MAX,
            person: None,
            distinct_id: None,
            below: None,
        }
    }
}

impl EventListFilter {
    fn is_named(&self, name: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.contains(name))
    }

    /// Whether an event of this time and arrival may match; its uuid may still exclude it.
    fn may_have(&self, time: Micros, seq: Seq) -> bool {
        let is_below = self.below.is_none_or(|below| (time, seq) <= (below.time, below.seq));
        is_below && time > self.after && time < self.before
    }

    /// The latest matching time.
    fn latest(&self) -> Micros {
        let before = self.before.saturating_sub(1);
        self.below.map_or(before, |below| before.min(below.time))
    }
}

/// A listed event.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedEvent {
    /// Its sort key.
    pub key: EventKey,
    /// Its canonical person.
    pub person: Uuid,
    /// The event.
    pub event: Event,
}

/// Progress of a listing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventListResult {
    /// The last event that was passed on, if there may be more after it.
    pub next: Option<EventKey>,
    /// Events that were decoded.
    pub examined: usize,
    /// Bytes of segments that were read.
    pub bytes_read: u64,
}

/// Limits of a listing.
#[derive(Debug, Clone, Copy)]
pub struct EventListBudget {
    /// Events that are decoded.
    pub events: usize,
    /// Bytes of segments.
    pub bytes: u64,
}

/// Receives listed events, newest first. Called on blocking threads; a batch that was begun is passed on even if its
/// caller is gone, so a sink that takes long checks for cancellation.
pub trait EventListSink: Send + 'static {
    /// Takes an event. After `Break`, no further ones follow.
    fn take(&mut self, event: ListedEvent) -> ControlFlow<()>;
}

/// A batch after it was passed on.
struct PassedBatch<T> {
    to: T,
    /// The memory of the batch.
    lease: MemoryLease,
    /// If the sink ended the list: the key of the last event that it took, and whether the batch has more.
    end: Option<(EventKey, bool)>,
}

fn pass_on<T: EventListSink>(events: Vec<ListedEvent>, mut to: T, lease: MemoryLease) -> PassedBatch<T> {
    let mut events = events.into_iter();
    while let Some(event) = events.next() {
        let key = event.key;
        if to.take(event).is_break() {
            let end = Some((key, events.len() > 0));
            return PassedBatch { to, lease, end };
        }
    }
    PassedBatch { to, lease, end: None }
}

/// Lists and exports events. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct EventList {
    snapshots: Arc<SnapshotReader>,
    blocks: Arc<BlockLog>,
    segments: Arc<SegmentStore>,
    duplicates: Arc<DuplicateFinder>,
    decode_budget: Arc<DecodeBudget>,
}

impl EventList {
    pub(crate) fn new(
        snapshots: Arc<SnapshotReader>,
        blocks: Arc<BlockLog>,
        segments: Arc<SegmentStore>,
        duplicates: Arc<DuplicateFinder>,
        decode_budget: Arc<DecodeBudget>,
    ) -> EventList {
        EventList { snapshots, blocks, segments, duplicates, decode_budget }
    }

    /// Passes matching events to the sink `to`, newest first, until it breaks or `budget` is used up. At least one
    /// batch is processed. Returns the sink.
    pub(crate) async fn list_newest_events<T: EventListSink>(
        &self,
        project: ProjectId,
        requested: EventListFilter,
        budget: EventListBudget,
        mut to: T,
        memory: &QueryMemory,
    ) -> Result<(T, EventListResult), EventStoreError> {
        let mut candidates = self.candidates(project, requested, memory).await?;
        let mut walked = EventListResult::default();
        let mut batch = BATCH;
        let mut lease = memory.lease(Purpose::Known);
        loop {
            let found = candidates.next(batch).await?;
            if found.is_empty() {
                walked.bytes_read = candidates.bytes_read;
                return Ok((to, walked));
            }
            walked.examined += found.len();
            let events = candidates.decode(found, &mut lease).await?;
            walked.bytes_read = candidates.bytes_read;
            let passed = tokio::task::spawn_blocking(move || pass_on(events, to, lease)).await?;
            (to, lease) = (passed.to, passed.lease);
            if let Some((key, has_more)) = passed.end {
                let is_more = has_more || candidates.has_more().await?;
                walked.next = is_more.then_some(key);
                walked.bytes_read = candidates.bytes_read;
                return Ok((to, walked));
            }
            lease.set(0)?;
            if walked.examined >= budget.events || walked.bytes_read >= budget.bytes {
                // All candidates so far were examined, including those that the sink never saw.
                walked.next = if candidates.has_more().await? { candidates.last } else { None };
                walked.bytes_read = candidates.bytes_read;
                return Ok((to, walked));
            }
            batch = (batch * 2).min(BATCH_MAX);
        }
    }

    async fn candidates(
        &self,
        project: ProjectId,
        requested: EventListFilter,
        memory: &QueryMemory,
    ) -> Result<Candidates, EventStoreError> {
        let (blocks, manifest, merge_state) = self.snapshots.blocks_and_manifest(project).await?;
        let person_merges = merge_state.person_merges.clone();
        let own = requested.distinct_id.as_deref().map(|distinct_id| derive_person_id(project, distinct_id));
        let persons = own.or(requested.person).map(|id| {
            let person = person_merges.person(id);
            let mut ids = person_merges.members(person);
            ids.extend([id, person]);
            ids
        });
        let requested = Arc::new(requested);
        let named = requested.clone();
        let choice = BlockFilter {
            event: Arc::new(move |name| named.is_named(name)),
            from: requested.after.saturating_add(1),
            to: requested.latest(),
            property: Arc::new(|_| false),
            memory: Some(memory.clone()),
        };
        let waiting = self.snapshots.block_events(project, &manifest, blocks, choice).await?;
        Ok(Candidates::new(self.clone(), requested, &manifest, waiting, person_merges, persons, memory))
    }
}
