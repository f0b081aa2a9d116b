//! The scan of one part, and its execution.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use pennon_analytics::PersonRange;
use pennon_analytics::scan::ScanRequest;
use serde::{Deserialize, Serialize};

use super::MovedRows;
use crate::error::EventStoreError;
use crate::manifest::SegmentEntry;
use crate::memory::{Purpose, QueryMemory};
use crate::persons::{PersonMergeState, PersonMerges};
use crate::scan::compiled_request::CompiledRequest;
use crate::scan::delta::DeltaRows;
use crate::scan::load::{LoadStats, Task};
use crate::scan::plan;
use crate::scan::{Scan, ScanSources, ScanStats, Scanner};

/// What a part reads: everything that could change meanwhile is in it by value.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PartScan {
    pub(in crate::scan) request: ScanRequest,
    /// Names of the group types, by index.
    pub(in crate::scan) group_types: Vec<String>,
    pub(in crate::scan) range: PersonRange,
    /// Entries of the segments; other processes read their objects.
    #[serde(with = "super::json_text")]
    pub(in crate::scan) segments: Vec<SegmentEntry>,
    /// The merged ids within the range and their canonical ids, 16 bytes each, sorted.
    pub(in crate::scan) merges: Vec<u8>,
    /// Rows of its persons that it does not find in its range of the segments.
    pub(in crate::scan) rows: Vec<MovedRows>,
}

impl PartScan {
    /// The persons of the part.
    pub fn range(&self) -> PersonRange {
        self.range
    }

    /// The request.
    pub fn request(&self) -> &ScanRequest {
        &self.request
    }

    /// What it reads of the segments, and the merges that apply to it.
    async fn open(
        &self,
        scanner: &Scanner,
    ) -> Result<(Arc<CompiledRequest>, plan::ScanPlan, Arc<PersonMergeState>), EventStoreError> {
        let requested = Arc::new(CompiledRequest::new(&self.request, &self.group_types));
        let files = scanner.open_segments(&self.segments).await?;
        let names = self.rows.iter().flat_map(|rows| &rows.names).map(String::as_str);
        let plan = plan::of(&files, names, &requested, self.range);
        let merges = PersonMerges::decode(self.merges.clone().into())?;
        Ok((requested, plan, Arc::new(PersonMergeState::of_merges(merges))))
    }
}

impl Scanner {
    /// Scans a part.
    pub(crate) async fn scan_part(
        &self,
        part: PartScan,
        memory: &QueryMemory,
    ) -> Result<Scan, EventStoreError> {
        let (requested, plan, merge_state) = part.open(self).await?;
        let stats = ScanStats { segments: part.segments.len() as u64, ..ScanStats::default() };
        let delta = part.rows.into_iter().map(|rows| rows.named(&plan.names)).collect();
        let sources = ScanSources { requested, plan, delta, merge_state, range: part.range };
        self.scan_sources(sources, memory, stats).await
    }

    /// The rows in the range of the part whose persons were merged into persons of other parts, and what was read for them. They
    /// are not counted as rows of this scan, but of that of the other part.
    pub(crate) async fn moved_rows(
        &self,
        part: PartScan,
        memory: &QueryMemory,
    ) -> Result<(MovedRows, ScanStats), EventStoreError> {
        let (requested, plan, merge_state) = part.open(self).await?;
        let mut stats = ScanStats { segments: part.segments.len() as u64, ..ScanStats::default() };
        // Collected, because a closure that is held while waiting keeps the compiler from seeing that this can be sent.
        let loads = plan.tasks.iter();
        let loads =
            loads.map(|task| self.rows_moved_away(task, &requested, &merge_state, (part.range, memory)));
        let loads = futures::stream::iter(loads.collect::<Vec<_>>()).buffered(self.segments.ranges_at_once());
        let loaded: Vec<(Vec<DeltaRows>, LoadStats)> = loads.try_collect().await?;
        let mut moved = Vec::new();
        for (rows, took) in loaded {
            stats.add(took);
            moved.extend(rows);
        }
        let names = plan.names;
        let rows = tokio::task::spawn_blocking(move || DeltaRows::concatenated(moved));
        Ok((MovedRows { names, rows: rows.await? }, stats))
    }

    /// The rows of a task that are stored under persons of the range, for persons that are not in it.
    async fn rows_moved_away(
        &self,
        task: &Arc<Task>,
        requested: &Arc<CompiledRequest>,
        merge_state: &Arc<PersonMergeState>,
        (range, memory): (PersonRange, &QueryMemory),
    ) -> Result<(Vec<DeltaRows>, LoadStats), EventStoreError> {
        let persons = self.persons_of(task).await?;
        let moved = merge_state.moved(task.file.object(), task.group, &persons);
        let places = range.places(&persons);
        let leaves = |(code, person): &&(u32, uuid::Uuid)| {
            places.contains(&(*code as usize)) && !range.contains(*person)
        };
        let away = moved.iter().filter(leaves).copied().collect::<Vec<_>>();
        if away.is_empty() {
            return Ok((Vec::new(), LoadStats::default()));
        }
        let (mut loaded, took) = self.load(task, requested, true, memory).await?;
        // Until the rows were split off.
        let mut lease = memory.lease(Purpose::Scan);
        lease.add(loaded.bytes())?;
        let memory = memory.clone();
        let split = tokio::task::spawn_blocking(move || {
            memory
                .measured(|| loaded.runs.iter_mut().filter_map(|run| DeltaRows::split(run, &away)).collect())
        });
        let split = split.await?;
        drop(lease);
        Ok((split?, took))
    }
}
