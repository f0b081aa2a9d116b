//! Loads the inputs of a plan from the event store: partitions of events, and the data that it joins to them.
//!
//! Must stay true: no data that a plan needs is left out, because missing data gives a wrong number; independent reads
//! run in parallel.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;

use futures::{StreamExt, TryStreamExt};
use pennon_analytics::scan::{Micros, Partition, ScanRequest};
use pennon_analytics::{ActorKind, DataRequirements, JoinData, PersonTimes, Plan, PropertyTable};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::model::Project;
use pennon_core::request_metrics;
use pennon_eventstore::cohort_lists::CohortList;
use pennon_eventstore::{GroupType, PinnedScan, QueryMemory, ScanStats, ThreadMeter, derive_person_id};
use pennon_filters::CancellationToken;
use tokio::time::Instant;
use uuid::Uuid;

use super::Calculator;
use super::definitions::QueryDefinitions;
use super::execution::PlanInputs;
use crate::errors::event_store_error;

/// Scans of sessions and behaviours that run in parallel.
const PARALLEL_SCANS: usize = 3;

impl Calculator {
    /// Loads the events, those pinned before or those of now, and the join data of a plan.
    pub(super) async fn load_inputs(
        &self,
        project: &Project,
        plan: &Plan,
        used: &QueryDefinitions,
        (pinned, memory): (Option<PinnedScan>, QueryMemory),
    ) -> ApiResult<PlanInputs> {
        let scan = Box::pin(self.scan(project, plan.scan(), pinned, &memory));
        let join_data = Box::pin(self.load_join_data(project, plan.needs(), &used.cohort_lists, &memory));
        let (partitions, join_data) = futures::try_join!(scan, join_data)?;
        Ok(PlanInputs { partitions, join_data, memory })
    }

    /// Loads the join data of a plan. Its memory is reserved from `memory`.
    pub(crate) async fn load_join_data(
        &self,
        project: &Project,
        needs: &DataRequirements,
        cohort_lists: &BTreeMap<u64, CohortList>,
        memory: &QueryMemory,
    ) -> ApiResult<JoinData> {
        let further = Box::pin(self.further_scans(project, needs, memory));
        let persons = self.persons(project, &needs.persons, needs.whole_persons, memory);
        let indexes: BTreeSet<u8> = needs.groups.keys().chain(&needs.whole_groups).copied().collect();
        let groups = indexes.into_iter().map(|index| {
            let keys = needs.groups.get(&index).cloned().unwrap_or_default();
            self.groups(project, index, keys, needs.whole_groups.contains(&index), memory)
        });
        let groups = futures::future::try_join_all(groups);
        let cohort_lists = self.cohort_members(project, &needs.cohort_lists, cohort_lists, memory);
        let named = self.persons_of_distinct_ids(project, &needs.distinct_ids);
        let creations = Box::pin(self.creations(project, needs, memory));
        let (further, persons, groups, cohort_lists, named, creations) =
            futures::try_join!(further, persons, groups, cohort_lists, named, creations)?;
        let groups = groups.into_iter().collect();
        let (imported_creations, first_person_events) = creations;
        let joined = JoinData { persons, groups, cohort_lists, named, ..JoinData::default() };
        Ok(JoinData { imported_creations, first_person_events, further, ..joined })
    }

    /// Pins the events of a plan as of now.
    pub(crate) async fn pin(
        &self,
        project: &Project,
        request: &ScanRequest,
        memory: &QueryMemory,
    ) -> ApiResult<PinnedScan> {
        let pinned = self.events.pin_scan(project.id, &project.group_types, request, memory).await;
        pinned.map_err(event_store_error)
    }

    async fn scan(
        &self,
        project: &Project,
        request: &ScanRequest,
        pinned: Option<PinnedScan>,
        memory: &QueryMemory,
    ) -> ApiResult<Vec<Partition>> {
        let started = Instant::now();
        let pinned = match pinned {
            Some(pinned) => pinned,
            None => self.pin(project, request, memory).await?,
        };
        let scan = self.events.scan_pinned(pinned, memory).await.map_err(event_store_error)?;
        self.record_scan(project, started, scan.stats);
        Ok(scan.partitions)
    }

    /// Logs and counts a scan.
    fn record_scan(&self, project: &Project, started: Instant, stats: ScanStats) {
        tracing::info!(
            project = project.id,
            millis = started.elapsed().as_millis() as u64,
            rows = stats.rows,
            rows_touched = stats.rows_touched,
            rows_decoded = stats.rows_decoded,
            bytes_read = stats.bytes_read,
            bytes_held = stats.bytes_held,
            cache_hits = stats.cache_hits,
            cache_misses = stats.cache_misses,
            segments = stats.segments,
            waiting_rows = stats.waiting_rows,
            "events scanned"
        );
        request_metrics::record(|metrics| metrics.add_bytes_read(stats.bytes_read));
        if let Some(metrics) = &self.metrics {
            metrics.add(stats);
        }
    }

    /// The scans of sessions, earliest events of groups, and behaviours.
    async fn further_scans(
        &self,
        project: &Project,
        needs: &DataRequirements,
        memory: &QueryMemory,
    ) -> ApiResult<Vec<Vec<Partition>>> {
        // Collected: the compiler cannot prove that the future is Send when it holds the closure across an await.
        let scans =
            needs.further_scans().map(|scan| self.scan(project, scan, None, memory)).collect::<Vec<_>>();
        futures::stream::iter(scans).buffered(PARALLEL_SCANS).try_collect().await
    }

    /// Properties of all persons: those of these keys, and with `whole` all others too.
    async fn persons(
        &self,
        project: &Project,
        keys: &BTreeSet<String>,
        whole: bool,
        memory: &QueryMemory,
    ) -> ApiResult<PropertyTable<Uuid>> {
        if keys.is_empty() && !whole {
            return Ok(PropertyTable::default());
        }
        let (people, mut persons) = if whole {
            (
                self.events.load_people_with_all_properties(project.id, memory).await,
                PropertyTable::whole(keys),
            )
        } else {
            (self.events.load_people(project.id, keys, memory).await, PropertyTable::new(keys))
        };
        let mut people = people.map_err(event_store_error)?;
        // The thread below frees them, which its meter subtracts from what it allocates.
        people.keep_reserved();
        let memory = memory.clone();
        let cancellation = CancellationToken::default();
        let _cancel_on_drop = cancellation.cancel_on_drop();
        let collected = tokio::task::spawn_blocking(move || {
            let meter = ThreadMeter::start(&memory);
            people.each(|id, _, properties| {
                persons.add(id, properties);
                if meter.is_over_budget() || cancellation.is_cancelled() {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            });
            meter.finish().map(|()| persons)
        });
        collected.await.map_err(|error| ApiError::internal(&error))?.map_err(event_store_error)
    }

    /// The creation times that imports recorded, and the times of the earliest events, if the plan reads creation times of
    /// persons.
    async fn creations(
        &self,
        project: &Project,
        needs: &DataRequirements,
        memory: &QueryMemory,
    ) -> ApiResult<(Vec<(Uuid, Micros)>, Vec<PersonTimes>)> {
        if needs.creations.as_ref().is_none_or(|request| request.actors != ActorKind::Persons) {
            return Ok((Vec::new(), Vec::new()));
        }
        let started = Instant::now();
        let imported = self.events.imported_creations(project.id, memory);
        let first_events = self.events.first_event_times(project.id, memory);
        let (imported, first_events) =
            futures::try_join!(imported, first_events).map_err(event_store_error)?;
        self.record_scan(project, started, first_events.stats);
        Ok((imported, first_events.lists))
    }

    /// The groups of one type; empty where the project does not have the type.
    async fn groups(
        &self,
        project: &Project,
        index: u8,
        keys: BTreeSet<String>,
        whole: bool,
        memory: &QueryMemory,
    ) -> ApiResult<(u8, PropertyTable<String>)> {
        let mut groups = if whole { PropertyTable::whole(&keys) } else { PropertyTable::new(&keys) };
        let Some(name) = project.group_types.get(usize::from(index)) else { return Ok((index, groups)) };
        let of = GroupType { index: u32::from(index), name: name.clone() };
        let keys = (!whole).then_some(&keys);
        let listed = self.events.load_groups(project.id, &of, keys, memory).await;
        let listed = listed.map_err(event_store_error)?;
        let memory = memory.clone();
        let collected = tokio::task::spawn_blocking(move || {
            let meter = ThreadMeter::start(&memory);
            for group in listed {
                groups.add(group.key, &group.properties);
                if meter.is_over_budget() {
                    break;
                }
            }
            meter.finish().map(|()| groups)
        });
        let groups = collected.await.map_err(|error| ApiError::internal(&error))?;
        Ok((index, groups.map_err(event_store_error)?))
    }

    /// The canonical person ids of distinct ids, merges applied.
    async fn persons_of_distinct_ids(
        &self,
        project: &Project,
        ids: &BTreeSet<String>,
    ) -> ApiResult<HashMap<String, Uuid>> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let finals = self.events.canonical_persons(project.id).await.map_err(event_store_error)?;
        Ok(ids.iter().map(|id| (id.clone(), finals.of(derive_person_id(project.id, id)))).collect())
    }

    /// The canonical person ids on the lists of static cohorts, merges applied.
    async fn cohort_members(
        &self,
        project: &Project,
        cohorts: &BTreeSet<u64>,
        known: &BTreeMap<u64, CohortList>,
        memory: &QueryMemory,
    ) -> ApiResult<BTreeMap<u64, HashSet<Uuid>>> {
        let lists = cohorts.iter().filter_map(|id| Some((*id, known.get(id)?)));
        let lists = lists.map(|(id, cohort_list)| async move {
            let listed = cohort_list.members_within(&self.records, project.id, id, memory).await;
            Ok::<_, ApiError>((id, listed.map_err(event_store_error)?))
        });
        let lists = futures::future::try_join_all(lists).await?;
        if lists.is_empty() {
            return Ok(BTreeMap::new());
        }
        let finals = self.events.canonical_persons(project.id).await.map_err(event_store_error)?;
        let resolved = tokio::task::spawn_blocking(move || {
            let of = |(id, listed): (u64, HashSet<Uuid>)| {
                (id, listed.into_iter().map(|one| finals.of(one)).collect())
            };
            lists.into_iter().map(of).collect()
        });
        resolved.await.map_err(|error| ApiError::internal(&error))
    }
}
