//! Erasure and retention: a person, a project's whole history, or what is older than an instant, gone for good.
//!
//! Segments are written without what is erased, and all take the place of the old ones in one transaction: whoever reads
//! the manifest afterwards finds none of it, in scans, persons, flags and groups alike, and no reader has to know of
//! erasure. The old objects go with the sweep, after the grace period. Events that wait in blocks are compacted first, so
//! what was acknowledged before the erasure began is erased with it; what arrives later counts. Must stay true: all of it
//! happens or nothing; no other event changes. A person's imported records are erased too; that its distinct ids were
//! one person is kept, as links between ids that nothing else names any more.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::UInt32Type;
use bytes::Bytes;
use pennon_core::store::keys::ProjectId;
use pennon_engine::scan::Micros;
use uuid::Uuid;

use crate::EventStore;
use crate::commit::NewSegment;
use crate::error::EventStoreError;
use crate::event::Row;
use crate::ingest::TRIES;
use crate::keys;
use crate::manifest::{Manifest, RecordsEntry, SegmentEntry, new_id};
use crate::person::derived;
use crate::profile::file;
use crate::resolution::Resolution;
use crate::segment::read::times;

/// Most segments that are written anew by one erasure: they are swapped in one transaction.
const SEGMENTS_MAX: usize = 80;

/// What is to be erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doomed {
    /// Everything that is known of somebody: by distinct id, or by the id of the person.
    Person(String),
    /// All events, persons and groups of the project.
    Project,
    /// Events that happened before this instant. Persons and groups stay.
    Before(Micros),
}

/// What was erased, or would be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Erased {
    /// Events.
    pub events: u64,
    /// Persons.
    pub persons: u64,
    /// Segments that were written anew, or taken away.
    pub segments: usize,
}

/// What a segment is written without.
#[derive(Debug, Clone, Default)]
pub(crate) struct Erase {
    /// Events of these persons, as they are in the end or were when a segment was written.
    pub persons: Arc<BTreeSet<Uuid>>,
    /// Events before this instant.
    pub before: Option<Micros>,
}

impl Erase {
    /// Whether nothing of a segment's events stays.
    pub(crate) fn covers(&self, entry: &SegmentEntry) -> bool {
        self.before.is_some_and(|before| entry.max_time < before)
    }

    fn names(&self, row: &Row, resolution: &Resolution) -> bool {
        let person = [row.person, resolution.person(row.person)].iter().any(|id| self.persons.contains(id));
        person || self.before.is_some_and(|before| row.event.timestamp < before)
    }
}

/// What an erasure is going to put in the place of what is there, by the ids of the entries.
#[derive(Default)]
struct Made {
    segments: HashMap<String, NewSegment>,
    records: HashMap<String, RecordsEntry>,
}

impl EventStore {
    /// Erases from a project what was acknowledged before now. When it returns, no read finds any of it.
    ///
    /// [`EventStoreError::TooLarge`] when more segments than fit into one transaction have to be written anew.
    pub async fn erase(
        &self,
        project: ProjectId,
        doomed: &Doomed,
        now: Micros,
    ) -> Result<Erased, EventStoreError> {
        while self.compact_blocks(project, now).await?.more {}
        let mut made = Made::default();
        let mut outcome = Err(EventStoreError::Contended);
        for _ in 0..TRIES {
            let (manifest, resolved) = self.manifest_and_persons(project).await?;
            let erase = self.erase_of(project, &manifest, &resolved.resolution, &[], doomed).await?;
            if let Some(erased) = self.try_erase(project, doomed, &manifest, &erase, &mut made, now).await? {
                outcome = Ok(erased);
                break;
            }
        }
        // What was made for segments that others replaced meanwhile, or for nothing.
        for new in made.segments.values() {
            self.drop_objects(new).await?;
        }
        outcome
    }

    /// What [`EventStore::erase`] would erase now. Nothing changes.
    pub async fn would_erase(&self, project: ProjectId, doomed: &Doomed) -> Result<Erased, EventStoreError> {
        let snapshot = self.snapshot(project).await?;
        let (manifest, resolution) = (&snapshot.manifest, &snapshot.resolution);
        let erase = self.erase_of(project, manifest, resolution, &snapshot.hot, doomed).await?;
        let known = self.has_any(project, manifest, &erase).await?;
        let hot = self.not_in_segments(manifest, snapshot.hot).await?;
        let is_all = *doomed == Doomed::Project;
        let waiting = hot.iter().filter(|row| is_all || erase.names(row, resolution)).count();
        let mut erased = Erased { events: waiting as u64, ..Erased::default() };
        for entry in &manifest.segments {
            let events = if is_all { entry.rows } else { self.count_in(entry, &erase).await? };
            erased.events += events;
            erased.segments += usize::from(events > 0);
        }
        erased.persons = match doomed {
            Doomed::Before(_) => 0,
            Doomed::Project => self.count_people(project).await?,
            Doomed::Person(_) => u64::from(erased.events > 0 || known),
        };
        Ok(erased)
    }

    /// What segments are to be written without.
    async fn erase_of(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        resolution: &Resolution,
        hot: &[Row],
        doomed: &Doomed,
    ) -> Result<Erase, EventStoreError> {
        let name = match doomed {
            Doomed::Project => return Ok(Erase::default()),
            Doomed::Before(before) => return Ok(Erase { before: Some(*before), ..Erase::default() }),
            Doomed::Person(name) => name,
        };
        let everybody = |id: Uuid| {
            let person = resolution.person(id);
            let mut ids = resolution.members(person);
            ids.extend([id, person]);
            Erase { persons: Arc::new(ids), before: None }
        };
        let by_distinct_id = everybody(derived(project, name));
        let Ok(id) = Uuid::parse_str(name) else { return Ok(by_distinct_id) };
        // Ids of persons and many distinct ids look alike; a distinct id goes first.
        let waits = hot.iter().any(|row| by_distinct_id.names(row, resolution));
        let known = waits || self.has_any(project, manifest, &by_distinct_id).await?;
        Ok(if known { by_distinct_id } else { everybody(id) })
    }

    /// Whether segments or imported records name somebody of `erase.persons`.
    async fn has_any(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        erase: &Erase,
    ) -> Result<bool, EventStoreError> {
        for entry in &manifest.segments {
            if !self.ids_in_segment(project, entry, &erase.persons).await?.ids.is_empty() {
                return Ok(true);
            }
        }
        let objects = self.persons_objects(project, manifest).await?;
        let named = |ids: &[Uuid]| ids.iter().any(|id| erase.persons.contains(id));
        Ok(objects.iter().any(|object| object.records().any(named)))
    }

    /// Puts what is left in the place of what is there. None when others changed the manifest meanwhile.
    async fn try_erase(
        &self,
        project: ProjectId,
        doomed: &Doomed,
        manifest: &Manifest,
        erase: &Erase,
        made: &mut Made,
        now: Micros,
    ) -> Result<Option<Erased>, EventStoreError> {
        let mut erased = Erased::default();
        let (mut segments, mut records) = (Vec::new(), Vec::new());
        if *doomed == Doomed::Project {
            erased.persons = self.count_people(project).await?;
            let mut new = NewSegment::new(project, now);
            let live = manifest.segments.iter();
            new.entry.replaces_segments = live.clone().map(|entry| entry.id.clone()).collect();
            erased.events = live.map(|entry| entry.rows).sum();
            erased.segments = manifest.segments.len();
            segments.push(new.entry);
            for (prefix, entry) in manifest.all_records() {
                let before = Some(entry.object.clone());
                let entry = RecordsEntry { rows: 0, at: now, before, ..entry.clone() };
                records.push((prefix, manifest.version_of(&entry.id), entry));
            }
        } else {
            let known = self.has_any(project, manifest, erase).await?;
            erased.persons = u64::from(known && !erase.persons.is_empty());
            for entry in &manifest.segments {
                let touched = self.count_in(entry, erase).await? > 0
                    || !self.ids_in_segment(project, entry, &erase.persons).await?.ids.is_empty();
                if !touched {
                    continue;
                }
                let left = self.without(project, entry, erase, made, now).await?;
                erased.events += entry.rows - left.rows;
                erased.segments += 1;
                segments.push(left);
            }
            records = self.records_without(project, manifest, erase, made, now).await?;
        }
        if segments.len() + records.len() > SEGMENTS_MAX {
            return Err(EventStoreError::TooLarge(format!(
                "More than {SEGMENTS_MAX} segments have to be written anew at once. Run `pennon compact` first."
            )));
        }
        if segments.is_empty() && records.is_empty() {
            return Ok(Some(erased));
        }
        if !manifest.swap(&self.inner.store, project, &segments, &records).await? {
            return Ok(None);
        }
        made.segments.retain(|_, new| segments.iter().all(|entry| entry.id != new.entry.id));
        Ok(Some(erased))
    }

    /// The segment that is to be in the place of `entry`; its objects are stored.
    async fn without(
        &self,
        project: ProjectId,
        entry: &SegmentEntry,
        erase: &Erase,
        made: &mut Made,
        now: Micros,
    ) -> Result<SegmentEntry, EventStoreError> {
        if let Some(known) = made.segments.get(&entry.id) {
            return Ok(known.entry.clone());
        }
        let entries = std::slice::from_ref(entry);
        let mut new = self.merged_segment(project, entries, erase, now).await?;
        self.write_objects(&new).await?;
        new.files.iter_mut().for_each(|(_, bytes)| *bytes = Bytes::new());
        let left = new.entry.clone();
        made.segments.insert(entry.id.clone(), new);
        Ok(left)
    }

    /// The entries of imported persons whose records name somebody of `erase.persons`, without these records.
    async fn records_without(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        erase: &Erase,
        made: &mut Made,
        now: Micros,
    ) -> Result<Vec<(&'static str, u64, RecordsEntry)>, EventStoreError> {
        let mut records = Vec::new();
        let objects = self.persons_objects(project, manifest).await?;
        for (entry, object) in manifest.persons.iter().zip(objects) {
            let named = |ids: &[Uuid]| ids.iter().any(|id| erase.persons.contains(id));
            let stays = object.records().map(|ids| !named(ids)).collect::<Vec<_>>();
            if stays.iter().all(|stays| *stays) {
                continue;
            }
            let known = made.records.get(&entry.id).cloned();
            let left = match known {
                Some(left) => left,
                None => {
                    let mut batches = Vec::new();
                    for group in 0..object.file.groups() {
                        let columns = object.file.columns();
                        batches.extend(
                            object.file.decode(&self.inner.objects, group, None, &columns).await?.batches,
                        );
                    }
                    let rows = stays.iter().filter(|stays| **stays).count() as u64;
                    let bytes = tokio::task::spawn_blocking(move || filtered(&batches, &stays)).await??;
                    let (id, size) = (new_id(now), bytes.len() as u64);
                    let name = format!("project={project}/persons/{id}.parquet");
                    self.inner.objects.create_all(&[(name.clone(), bytes)]).await?;
                    let before = Some(entry.object.clone());
                    RecordsEntry { object: name, rows, bytes: size, at: now, before, ..entry.clone() }
                }
            };
            made.records.insert(entry.id.clone(), left.clone());
            records.push((keys::PERSONS, manifest.version_of(&entry.id), left));
        }
        Ok(records)
    }

    /// How many events of a segment `erase` names.
    async fn count_in(&self, entry: &SegmentEntry, erase: &Erase) -> Result<u64, EventStoreError> {
        if entry.rows == 0 || erase.before.is_some_and(|before| entry.min_time >= before) {
            return Ok(0);
        }
        if erase.covers(entry) {
            return Ok(entry.rows);
        }
        let file = self.segment(entry).await?;
        let persons = match &entry.persons {
            Some(object) if !erase.persons.is_empty() => self.inner.objects.get(object).await?,
            _ => Bytes::new(),
        };
        let mut persons = persons.as_chunks::<16>().0;
        let (mut count, before) = (0, erase.before.unwrap_or(Micros::MIN));
        for (group, range) in file.footer.ranges.iter().enumerate() {
            let own = persons.split_off(..(range.persons as usize).min(persons.len())).unwrap_or_default();
            let is_named = own.iter().map(|id| erase.persons.contains(&Uuid::from_bytes(*id)));
            let named = is_named.collect::<Vec<_>>();
            if erase.before.is_none() && !named.contains(&true) {
                continue;
            }
            let columns = ["person_code".to_owned(), "timestamp".to_owned()];
            for batch in file.decode(&self.inner.objects, group, None, &columns).await?.batches {
                let codes = batch.column_by_name("person_code");
                let codes = codes.and_then(|codes| codes.as_primitive_opt::<UInt32Type>());
                let codes =
                    codes.ok_or_else(|| EventStoreError::corrupt("a segment without person codes"))?;
                let rows = codes.values().iter().zip(times(&batch)?);
                let is_erased = |(code, time): &(&u32, Micros)| {
                    *time < before || named.get(**code as usize) == Some(&true)
                };
                count += rows.filter(is_erased).count() as u64;
            }
        }
        Ok(count)
    }
}

/// A file with those rows of `batches` that stay.
fn filtered(batches: &[arrow::array::RecordBatch], stays: &[bool]) -> Result<Bytes, EventStoreError> {
    let schema = batches.first().ok_or_else(|| EventStoreError::corrupt("a file without rows"))?.schema();
    let all = concat_batches(&schema, batches)?;
    let left = filter_record_batch(&all, &BooleanArray::from(stays.to_vec()))?;
    let columns = schema.fields().iter().zip(left.columns());
    file::write(columns.map(|(field, column)| (field.name().as_str(), column.clone())).collect())
}
