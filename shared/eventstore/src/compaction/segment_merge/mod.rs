//! Merges several segments into one, person range by person range.
//!
//! Must stay true: memory holds the rows of one range of the new segment and the encoded output. Every source
//! row is written once, under its canonical person. The size of a range is known before any row is read, and
//! bounded ([`range_widths`]). The public interface is [`SegmentMerger`].

mod range_widths;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use parquet::arrow::arrow_reader::RowSelection;
use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use crate::error::EventStoreError;
use crate::manifest::SegmentEntry;
use crate::persons::profiles::file::encode_groups;
use crate::persons::profiles::merge::merged_ids;
use crate::persons::profiles::{Profile, ProfileReader};
use crate::persons::{ErasureFilter, PersonMerges};
use crate::segments::property_columns::{PropertyColumnKind, TypeCounts};
use crate::segments::reader::SegmentFile;
use crate::segments::row_merge::{
    DROPPED_PERSON, PropertyValueCounts, RECOMPUTED_COLUMNS, SourceRows, conflicting_keys, count_types,
    merge_sources, plan, rows_for,
};
use crate::segments::writer::{ReplacedInputs, SegmentWriter, WrittenSegment, range_bits, range_of};
use crate::segments::{Footer, NewSegment, PROPERTY, RANGE_BYTES, SegmentStore};
use crate::settings::Settings;

/// A source segment.
struct MergeSource {
    file: Arc<SegmentFile>,
    footer: Arc<Footer>,
    /// One for each row group.
    ranges: Vec<SourceRange>,
    rows: u64,
}

impl MergeSource {
    /// Distributes its rows to `2^bits` ranges.
    fn narrow(&mut self, bits: u32) {
        self.ranges.iter_mut().for_each(|range| range.narrow(bits));
    }

    /// The person codes of a row group.
    async fn codes(&self, group: usize) -> Result<Vec<RecordBatch>, EventStoreError> {
        Ok(self.file.decode(group, None, &["person_code".to_owned()]).await?.batches)
    }
}

/// The person codes of a batch.
fn codes_of(batch: &RecordBatch) -> Result<&[u32], EventStoreError> {
    let codes = batch.column_by_name("person_code");
    let codes = codes.and_then(|codes| codes.as_primitive_opt::<UInt32Type>());
    Ok(codes.ok_or_else(|| EventStoreError::corrupt("a segment without person codes"))?.values())
}

/// A person range of a source.
struct SourceRange {
    /// Canonical persons by person code.
    finals: Arc<Vec<u128>>,
    /// Target ranges in the new segment, by person code.
    targets: Arc<Vec<u32>>,
    /// The distinct target ranges.
    present: BTreeSet<u32>,
}

impl SourceRange {
    /// Whether all its rows go to one range.
    fn is_whole(&self) -> bool {
        self.present.len() == 1 && !self.targets.contains(&DROPPED_PERSON)
    }

    fn narrow(&mut self, bits: u32) {
        let target = |(person, before): (&u128, &u32)| match *before {
            DROPPED_PERSON => DROPPED_PERSON,
            _ => range_of(Uuid::from_u128(*person), bits) as u32,
        };
        self.targets = Arc::new(self.finals.iter().zip(self.targets.iter()).map(target).collect());
        self.present = present(&self.targets);
    }
}

/// The distinct target ranges.
fn present(targets: &[u32]) -> BTreeSet<u32> {
    targets.iter().copied().filter(|target| *target != DROPPED_PERSON).collect()
}

/// Merges segments into one new segment, which is not stored yet.
#[derive(Debug)]
pub(crate) struct SegmentMerger {
    segments: Arc<SegmentStore>,
    profiles: Arc<ProfileReader>,
    settings: Settings,
}

impl SegmentMerger {
    pub(crate) fn new(
        segments: Arc<SegmentStore>,
        profiles: Arc<ProfileReader>,
        settings: Settings,
    ) -> SegmentMerger {
        SegmentMerger { segments, profiles, settings }
    }

    /// Writes the segment with the events of `entries` except those that `erase` selects, under the canonical
    /// persons of `person_merges`.
    pub(crate) async fn merged_segment(
        &self,
        project: ProjectId,
        entries: &[SegmentEntry],
        erase: &ErasureFilter,
        person_merges: &PersonMerges,
        now: Micros,
    ) -> Result<NewSegment, EventStoreError> {
        let person_merges = Arc::new(person_merges.clone());
        let mut new = NewSegment::new(project, now);
        new.entry.replaces_segments = entries.iter().map(|entry| entry.id.clone()).collect();
        let left = entries.iter().filter(|entry| !erase.covers(entry)).cloned().collect::<Vec<_>>();
        if let Some(written) = self.merge_rows(&left, &person_merges, erase).await? {
            new.put(written);
        }
        let mut files = Vec::new();
        let mut groups = Profile::default();
        for entry in entries.iter().filter(|entry| entry.has_profiles()) {
            if let Some(ids) = entry.id_file()? {
                files.push(self.segments.open_profile_file(ids).await?);
            }
            groups.merge(Profile {
                groups: self.profiles.groups_in_segment(entry).await?,
                ..Profile::default()
            });
        }
        let (ids, rows) = merged_ids(files, &erase.persons).await?;
        if rows > 0 {
            new.put_ids(ids, rows);
        }
        if !groups.groups.is_empty() {
            new.put_groups(encode_groups(&groups)?, groups.groups.len() as u64);
        }
        Ok(new)
    }

    /// The files of a segment with all rows of `entries` except those that `erase` selects; none if there are
    /// no rows.
    async fn merge_rows(
        &self,
        entries: &[SegmentEntry],
        person_merges: &Arc<PersonMerges>,
        erase: &ErasureFilter,
    ) -> Result<Option<WrittenSegment>, EventStoreError> {
        let bits = self.bits_of(entries).await?;
        let mut sources = Vec::new();
        for entry in entries.iter().filter(|entry| entry.rows > 0) {
            sources.push(self.source(entry, person_merges, bits, erase).await?);
        }
        let bits = self.bits_that_fit(&mut sources, bits).await?;
        let columns = self.columns_of(&sources).await?;
        let mut writer = SegmentWriter::new(columns.clone(), bits)?;
        let columns: Arc<[(String, PropertyColumnKind)]> = columns.into();
        let mut taken = 0;
        for range in 0..1_u32 << bits {
            let parts = self.parts(&sources, range, erase.before).await?;
            taken += parts.iter().map(|part| part.batch.num_rows() as u64).sum::<u64>();
            if parts.is_empty() {
                continue;
            }
            let columns = columns.clone();
            let written = tokio::task::spawn_blocking(move || {
                let rows = merge_sources(&parts, &columns, writer.schema())?;
                drop(parts);
                writer.write(&rows)?;
                Ok::<_, EventStoreError>(writer)
            });
            writer = written.await??;
        }
        let expected = sources.iter().map(|source| source.rows).sum::<u64>();
        if taken != expected && erase.persons.is_empty() {
            return Err(EventStoreError::Corrupt(format!(
                "{taken} of {expected} events were found to be merged"
            )));
        }
        let written =
            tokio::task::spawn_blocking(move || writer.finish(&ReplacedInputs::default())).await??;
        Ok((written.rows > 0).then_some(written))
    }

    /// Number of person id bits that select the range in the new segment. Ranges of wide rows are narrower, so
    /// that they fit into memory.
    async fn bits_of(&self, entries: &[SegmentEntry]) -> Result<u32, EventStoreError> {
        let (mut rows, mut bytes) = (0, 0);
        for entry in entries.iter().filter(|entry| entry.rows > 0) {
            let file = self.segments.open(entry).await?;
            rows += usize::try_from(entry.rows).unwrap_or(usize::MAX);
            let encoded =
                file.metadata().row_groups().iter().map(|group| group.total_byte_size()).sum::<i64>();
            bytes += usize::try_from(encoded).unwrap_or(0);
        }
        Ok(range_bits(rows, self.segments.range_rows).max(range_bits(bytes, RANGE_BYTES)))
    }

    async fn source(
        &self,
        entry: &SegmentEntry,
        person_merges: &Arc<PersonMerges>,
        bits: u32,
        erase: &ErasureFilter,
    ) -> Result<MergeSource, EventStoreError> {
        let file = self.segments.open(entry).await?;
        let bytes = self.segments.person_ids(entry).await?;
        let bytes = bytes.ok_or_else(|| EventStoreError::corrupt("a segment without its persons"))?;
        let footer = Arc::new(file.footer.clone());
        let (of_footer, person_merges, persons) =
            (footer.clone(), person_merges.clone(), erase.persons.clone());
        let damaged = EventStoreError::Corrupt(format!(
            "{} does not have the persons of its segment",
            entry.persons.as_deref().unwrap_or_default()
        ));
        let ranges = tokio::task::spawn_blocking(move || {
            let target = |id: Uuid, last: Uuid| {
                if persons.contains(&id) || persons.contains(&last) {
                    DROPPED_PERSON
                } else {
                    range_of(last, bits) as u32
                }
            };
            ranges(&of_footer, &bytes, &person_merges, target)
        });
        let ranges = ranges.await?;
        let ranges =
            ranges.filter(|ranges| ranges.len() == file.metadata().num_row_groups()).ok_or(damaged)?;
        Ok(MergeSource { rows: entry.rows, file, footer, ranges })
    }

    /// Chooses the property columns of the new segment.
    async fn columns_of(
        &self,
        sources: &[MergeSource],
    ) -> Result<Vec<(String, PropertyColumnKind)>, EventStoreError> {
        let mut tallies: BTreeMap<String, TypeCounts> = BTreeMap::new();
        for key in conflicting_keys(sources.iter().map(|source| &*source.footer)) {
            let mut of_key = TypeCounts::default();
            for source in sources {
                let name = [format!("{PROPERTY}{key}")];
                for group in 0..source.ranges.len() {
                    for batch in source.file.decode(group, None, &name).await?.batches {
                        count_types(&mut of_key, &batch, &source.footer, &key)?;
                    }
                }
            }
            tallies.insert(key, of_key);
        }
        let counted = sources.iter().map(|source| (source.footer.clone(), counts(&source.file)));
        Ok(plan(&counted.collect::<Vec<_>>(), &tallies))
    }

    /// Reads the rows of range `range` of the new segment.
    async fn parts(
        &self,
        sources: &[MergeSource],
        range: u32,
        before: Option<Micros>,
    ) -> Result<Vec<SourceRows>, EventStoreError> {
        let mut parts = Vec::new();
        for source in sources {
            for (group, of) in source.ranges.iter().enumerate() {
                if !of.present.contains(&range) {
                    continue;
                }
                let selection =
                    if of.is_whole() { None } else { Some(self.selection(source, group, range).await?) };
                let columns = source.file.columns();
                let columns = columns
                    .into_iter()
                    .filter(|name| !RECOMPUTED_COLUMNS.contains(&name.as_str()))
                    .collect::<Vec<_>>();
                let decoded = source.file.decode(group, selection, &columns).await?;
                let part = |batch| SourceRows {
                    batch,
                    footer: source.footer.clone(),
                    finals: of.finals.clone(),
                    from: before.unwrap_or(Micros::MIN),
                };
                parts.extend(decoded.batches.into_iter().map(part));
            }
        }
        Ok(parts)
    }

    async fn selection(
        &self,
        source: &MergeSource,
        group: usize,
        range: u32,
    ) -> Result<RowSelection, EventStoreError> {
        let batches = source.codes(group).await?;
        let targets = source.ranges[group].targets.clone();
        let selected = tokio::task::spawn_blocking(move || {
            let mut rows = Vec::new();
            let mut before = 0;
            for batch in &batches {
                let found = rows_for(codes_of(batch)?, &targets, range);
                rows.extend(found.into_iter().map(|rows| before + rows.start..before + rows.end));
                before += batch.num_rows();
            }
            Ok::<_, EventStoreError>(RowSelection::from_consecutive_ranges(rows.into_iter(), before))
        });
        selected.await?
    }
}

/// The person ranges of a segment; none if its persons do not match the footer. `target` maps a person and its
/// canonical id to the target range.
fn ranges(
    footer: &Footer,
    persons: &[u8],
    person_merges: &PersonMerges,
    target: impl Fn(Uuid, Uuid) -> u32,
) -> Option<Vec<SourceRange>> {
    let (ids, []) = persons.as_chunks::<16>() else { return None };
    let mut left = ids;
    let mut ranges = Vec::with_capacity(footer.ranges.len());
    for range in &footer.ranges {
        let own = left.split_off(..range.persons as usize)?;
        let mut finals = Vec::with_capacity(own.len());
        let mut targets = Vec::with_capacity(own.len());
        for id in own {
            let id = Uuid::from_bytes(*id);
            let last = person_merges.person(id);
            finals.push(last.as_u128());
            targets.push(target(id, last));
        }
        let present = present(&targets);
        ranges.push(SourceRange { finals: Arc::new(finals), targets: Arc::new(targets), present });
    }
    left.is_empty().then_some(ranges)
}

/// Number of values in each property column.
fn counts(file: &SegmentFile) -> PropertyValueCounts {
    let mut counts: HashMap<String, u64> = HashMap::new();
    for group in file.metadata().row_groups() {
        let rows = u64::try_from(group.num_rows()).unwrap_or(0);
        for column in group.columns() {
            if let Some(key) = column.column_descr().name().strip_prefix(PROPERTY) {
                let nulls = column.statistics().and_then(|statistics| statistics.null_count_opt());
                *counts.entry(key.to_owned()).or_default() += rows - nulls.unwrap_or(0).min(rows);
            }
        }
    }
    counts
}
