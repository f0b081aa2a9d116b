//! Builds the components of the event store.
//!
//! Must stay true: a component gets the components that it uses as arguments, so each can use only those that are
//! built before it. The order is the order of the modules (see the crate's documentation).

use std::sync::Arc;

use pennon_core::store::{Store, Table};

use crate::blocks::BlockLog;
use crate::compaction::{Compactor, MergeAttempts, MergeFailures, SegmentMerger, StalePersonChecks, Sweeper};
use crate::definitions::DefinitionLists;
use crate::erasure::Eraser;
use crate::event_list::EventList;
use crate::flag_calls::FlagCallCounter;
use crate::ingest::{CompactionWaker, EventCapture, EventImporter};
use crate::installation::InstallationCheck;
use crate::integrity::IntegrityChecker;
use crate::manifest::{ManifestStore, ProjectList, VersionMarks};
use crate::memory::{DecodeBudget, MemoryBudget};
use crate::objects::{Objects, Quarantine, ResultObjects, TableFiles};
use crate::persons::imports::LegacyIdsReader;
use crate::persons::profiles::ProfileReader;
use crate::persons::{ImportedRecords, MergeLog, PersonIndex, PersonLookup, PersonMergeStates};
use crate::scan::{PieceCache, Scanner};
use crate::segments::{DuplicateFinder, SegmentStore};
use crate::settings::Settings;
use crate::snapshots::SnapshotReader;

#[derive(Debug)]
pub(super) struct Components {
    /// For leases and wakes of compaction.
    pub records: Table,
    pub settings: Settings,
    /// Shared by queries and the cache of decoded pieces.
    pub memory: MemoryBudget,
    pub quarantine: Quarantine,
    pub results: ResultObjects,
    pub table_files: TableFiles,
    pub projects: Arc<ProjectList>,
    pub manifests: Arc<ManifestStore>,
    pub installation: Arc<InstallationCheck>,
    pub blocks: Arc<BlockLog>,
    pub flag_calls: Arc<FlagCallCounter>,
    pub imports: Arc<ImportedRecords>,
    pub lookup: Arc<PersonLookup>,
    pub snapshots: Arc<SnapshotReader>,
    pub capture: EventCapture,
    pub importer: EventImporter,
    pub scanner: Scanner,
    pub event_list: EventList,
    pub definitions: DefinitionLists,
    pub compactor: Arc<Compactor>,
    pub sweeper: Sweeper,
    pub eraser: Eraser,
    pub checker: IntegrityChecker,
}

/// Rows, objects, blocks and segments.
struct Storage {
    records: Table,
    objects: Objects,
    quarantine: Quarantine,
    settings: Settings,
    projects: Arc<ProjectList>,
    manifests: Arc<ManifestStore>,
    installation: Arc<InstallationCheck>,
    blocks: Arc<BlockLog>,
    flag_calls: Arc<FlagCallCounter>,
    segments: Arc<SegmentStore>,
    duplicates: Arc<DuplicateFinder>,
}

/// Persons and groups.
struct Persons {
    imports: Arc<ImportedRecords>,
    log: Arc<MergeLog>,
    index: Arc<PersonIndex>,
    profiles: Arc<ProfileReader>,
    lookup: Arc<PersonLookup>,
}

impl Storage {
    fn build(store: Store, objects: Objects, settings: Settings) -> Storage {
        let records = store.records;
        let quarantine = Quarantine::new(records.clone());
        let objects = objects.with_quarantine(quarantine.clone());
        let marks = Arc::new(VersionMarks::new(objects.clone()));
        let projects = Arc::new(ProjectList::new(records.clone()));
        let manifests = Arc::new(ManifestStore::new(records.clone(), marks.clone()));
        let installation = Arc::new(InstallationCheck::new(
            records.clone(),
            objects.clone(),
            manifests.clone(),
            marks,
            projects.clone(),
        ));
        let blocks = Arc::new(BlockLog::new(store.blocks, objects.clone(), quarantine.clone(), settings));
        let flag_calls = Arc::new(FlagCallCounter::new(records.clone(), blocks.clone()));
        let segments =
            Arc::new(SegmentStore::new(objects.clone(), manifests.clone(), flag_calls.clone(), &settings));
        let duplicates = Arc::new(DuplicateFinder::new(objects.clone(), segments.clone()));
        Storage {
            records,
            objects,
            quarantine,
            settings,
            projects,
            manifests,
            installation,
            blocks,
            flag_calls,
            segments,
            duplicates,
        }
    }
}

impl Persons {
    fn build(storage: &Storage, read_legacy_ids: Option<LegacyIdsReader>) -> Persons {
        let Storage { records, objects, manifests, projects, blocks, segments, duplicates, .. } = storage;
        let states = Arc::new(PersonMergeStates::new());
        let imports = Arc::new(ImportedRecords::new(
            manifests.clone(),
            projects.clone(),
            objects.clone(),
            storage.settings,
            read_legacy_ids,
            states.clone(),
        ));
        let log = Arc::new(MergeLog::new(
            records.clone(),
            manifests.clone(),
            objects.clone(),
            imports.clone(),
            &storage.settings,
        ));
        let index = Arc::new(PersonIndex::new(manifests.clone(), imports.clone(), log.clone(), states));
        let profiles = Arc::new(ProfileReader::new(segments.clone()));
        let lookup = Arc::new(PersonLookup::new(
            index.clone(),
            imports.clone(),
            log.clone(),
            blocks.clone(),
            duplicates.clone(),
            profiles.clone(),
            segments.clone(),
        ));
        Persons { imports, log, index, profiles, lookup }
    }
}

impl Components {
    /// Builds all components.
    pub(super) fn build(
        store: Store,
        objects: Objects,
        settings: Settings,
        read_legacy_ids: Option<LegacyIdsReader>,
    ) -> Components {
        let storage = Storage::build(store, objects, settings);
        let persons = Persons::build(&storage, read_legacy_ids);
        let Storage { projects, manifests, blocks, flag_calls, segments, duplicates, .. } = &storage;
        let Persons { imports, log, index, lookup, .. } = &persons;
        let pieces = Arc::new(PieceCache::new(settings.cache_bytes));
        let memory = MemoryBudget::new(settings.memory_bytes, settings.cache_bytes, pieces.clone());
        let decode_budget = Arc::new(DecodeBudget::new(settings.scan_bytes / 2));
        let snapshots = Arc::new(SnapshotReader::new(
            blocks.clone(),
            index.clone(),
            duplicates.clone(),
            segments.clone(),
        ));
        let merger = Arc::new(SegmentMerger::new(segments.clone(), persons.profiles.clone(), settings));
        let compactor = Arc::new(compactor(&storage, &persons, merger.clone()));
        Components {
            records: storage.records.clone(),
            settings,
            results: ResultObjects::new(storage.objects.clone()),
            table_files: TableFiles::new(storage.objects.clone()),
            capture: EventCapture::new(
                projects.clone(),
                log.clone(),
                blocks.clone(),
                flag_calls.clone(),
                CompactionWaker::new(settings.wakes_compaction.then(|| storage.records.clone())),
            ),
            importer: EventImporter::new(
                projects.clone(),
                snapshots.clone(),
                segments.clone(),
                duplicates.clone(),
                settings,
            ),
            scanner: Scanner::new(
                snapshots.clone(),
                segments.clone(),
                duplicates.clone(),
                pieces,
                decode_budget.clone(),
            ),
            event_list: EventList::new(
                snapshots.clone(),
                blocks.clone(),
                segments.clone(),
                duplicates.clone(),
                decode_budget,
            ),
            definitions: DefinitionLists::new(
                blocks.clone(),
                manifests.clone(),
                segments.clone(),
                snapshots.clone(),
                lookup.clone(),
            ),
            sweeper: sweeper(&storage, &persons),
            eraser: eraser(&storage, &persons, snapshots.clone(), compactor.clone(), merger),
            checker: checker(&storage, log.clone()),
            memory,
            compactor,
            snapshots,
            projects: projects.clone(),
            manifests: manifests.clone(),
            blocks: blocks.clone(),
            flag_calls: flag_calls.clone(),
            imports: imports.clone(),
            lookup: lookup.clone(),
            installation: storage.installation,
            quarantine: storage.quarantine,
        }
    }
}

fn compactor(storage: &Storage, persons: &Persons, merger: Arc<SegmentMerger>) -> Compactor {
    Compactor {
        manifests: storage.manifests.clone(),
        blocks: storage.blocks.clone(),
        segments: storage.segments.clone(),
        duplicates: storage.duplicates.clone(),
        index: persons.index.clone(),
        imports: persons.imports.clone(),
        log: persons.log.clone(),
        merger,
        settings: storage.settings,
        merge_failures: MergeFailures::default(),
        merge_attempts: MergeAttempts::new(storage.records.clone()),
        stale_person_checks: StalePersonChecks::default(),
    }
}

fn sweeper(storage: &Storage, persons: &Persons) -> Sweeper {
    Sweeper::new(
        storage.manifests.clone(),
        storage.blocks.clone(),
        storage.segments.clone(),
        persons.imports.clone(),
        persons.log.clone(),
        storage.installation.clone(),
        storage.objects.clone(),
    )
}

fn eraser(
    storage: &Storage,
    persons: &Persons,
    snapshots: Arc<SnapshotReader>,
    compactor: Arc<Compactor>,
    merger: Arc<SegmentMerger>,
) -> Eraser {
    Eraser {
        records: storage.records.clone(),
        quarantine: storage.quarantine.clone(),
        manifests: storage.manifests.clone(),
        blocks: storage.blocks.clone(),
        segments: storage.segments.clone(),
        duplicates: storage.duplicates.clone(),
        index: persons.index.clone(),
        imports: persons.imports.clone(),
        log: persons.log.clone(),
        profiles: persons.profiles.clone(),
        lookup: persons.lookup.clone(),
        snapshots,
        compactor,
        merger,
        settings: storage.settings,
    }
}

fn checker(storage: &Storage, log: Arc<MergeLog>) -> IntegrityChecker {
    IntegrityChecker::new(
        storage.manifests.clone(),
        storage.objects.clone(),
        storage.quarantine.clone(),
        storage.blocks.clone(),
        storage.segments.clone(),
        log,
        storage.settings,
    )
}
