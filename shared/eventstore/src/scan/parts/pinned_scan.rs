//! The events that a request selects, as they were at one moment.

use std::sync::Arc;

use bytes::Bytes;
use pennon_analytics::PersonRange;

use super::{MovedRows, PartScan};
use crate::manifest::SegmentEntry;
use crate::memory::MemoryLease;
use crate::persons::{PersonMergeState, PersonMerges};
use crate::scan::compiled_request::CompiledRequest;
use crate::scan::plan::ScanPlan;

/// The selected events of a project at one moment: whatever is written later does not change them, as long as the objects of
/// its segments exist, which is the grace period of replaced segments.
#[derive(Debug)]
pub struct PinnedScan {
    pub(in crate::scan) requested: Arc<CompiledRequest>,
    pub(in crate::scan) group_types: Vec<String>,
    pub(in crate::scan) entries: Vec<SegmentEntry>,
    pub(in crate::scan) plan: ScanPlan,
    pub(in crate::scan) merge_state: Arc<PersonMergeState>,
    /// Events of blocks that are in no segment.
    pub(in crate::scan) waiting: MovedRows,
    /// What these rows reserve of the query.
    pub(in crate::scan) waiting_memory: MemoryLease,
    /// Events of blocks, those of other names included.
    pub(in crate::scan) waiting_event_count: u64,
}

impl PinnedScan {
    /// Rows of the runs that are read, before they are clipped by time, and waiting rows.
    pub fn rows(&self) -> u64 {
        self.plan.rows() + self.waiting_rows()
    }

    /// Rows of blocks, which are in no segment.
    pub fn waiting_rows(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Whether rows may be stored under persons that were merged into others, so that parts have to pass rows on.
    pub fn has_merges(&self) -> bool {
        !self.merge_state.person_merges.is_empty() && !self.entries.is_empty()
    }

    /// The scan of each range that may store rows for persons of other parts.
    pub fn parts_for_moved_rows<'a>(
        &'a self,
        ranges: &'a [PersonRange],
    ) -> impl Iterator<Item = PartScan> + 'a {
        let parts = self.parts_with(ranges, Vec::new());
        parts.filter(|part| PersonMerges::lead_out_of(&part.merges, part.range))
    }

    /// The scan of each range. `moved` are the rows that parts have returned, from all of these ranges.
    pub fn parts<'a>(
        &'a self,
        ranges: &'a [PersonRange],
        moved: &'a [MovedRows],
    ) -> impl Iterator<Item = PartScan> + 'a {
        self.parts_with(ranges, std::iter::once(&self.waiting).chain(moved).collect())
    }

    fn parts_with<'a>(
        &'a self,
        ranges: &'a [PersonRange],
        rows: Vec<&'a MovedRows>,
    ) -> impl Iterator<Item = PartScan> + 'a {
        let pairs = if self.has_merges() { self.merge_state.person_merges.encode() } else { Bytes::new() };
        ranges.iter().map(move |range| PartScan {
            request: self.requested.request.clone(),
            group_types: self.group_types.clone(),
            range: *range,
            segments: self.entries.clone(),
            merges: PersonMerges::encoded_within(&pairs, *range).to_vec(),
            rows: rows.iter().map(|rows| rows.of_range(*range)).filter(|rows| !rows.is_empty()).collect(),
        })
    }
}
