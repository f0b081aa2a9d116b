//! What a plan has to know beside events, gathered from the event store.
//!
//! Must stay true: nothing that a plan names is left out, because a missing fact is a wrong number; reads that do not
//! depend on each other run side by side.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;

use futures::{StreamExt, TryStreamExt};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::model::Project;
use pennon_core::request_metrics;
use pennon_engine::scan::{Partition, ScanRequest};
use pennon_engine::{CancellationToken, Facts, Needs, Plan, Properties};
use pennon_eventstore::members::Roster;
use pennon_eventstore::{GroupType, QuestionMemory, ThreadMeter, derived};
use tokio::time::Instant;
use uuid::Uuid;

use super::Calculator;
use super::definitions::Used;
use super::run::Gathered;
use crate::errors::unreadable;

/// Scans of sessions and behaviours that run side by side.
const SCANS_AT_ONCE: usize = 3;

impl Calculator {
    /// The events of a plan, and what it has to know beside them.
    pub(super) async fn gather(&self, project: &Project, plan: &Plan, used: &Used) -> ApiResult<Gathered> {
        let memory = self.events.question_memory();
        let scan = Box::pin(self.scan(project, plan.scan(), &memory));
        let facts = Box::pin(self.facts(project, plan.needs(), &used.rosters, &memory));
        let (partitions, facts) = futures::try_join!(scan, facts)?;
        Ok(Gathered { partitions, facts, memory })
    }

    /// What has to be known beside events. Its memory is reserved from `memory`.
    pub(super) async fn facts(
        &self,
        project: &Project,
        needs: &Needs,
        rosters: &BTreeMap<u64, Roster>,
        memory: &QuestionMemory,
    ) -> ApiResult<Facts> {
        let further = Box::pin(self.further_scans(project, needs, memory));
        let persons = self.persons(project, &needs.persons, needs.whole_persons, memory);
        let indexes: BTreeSet<u8> = needs.groups.keys().chain(&needs.whole_groups).copied().collect();
        let groups = indexes.into_iter().map(|index| {
            let keys = needs.groups.get(&index).cloned().unwrap_or_default();
            self.groups(project, index, keys, needs.whole_groups.contains(&index))
        });
        let groups = futures::future::try_join_all(groups);
        let rosters = self.rosters(project, &needs.rosters, rosters);
        let named = self.named(project, &needs.distinct_ids);
        let (further, persons, groups, rosters, named) =
            futures::try_join!(further, persons, groups, rosters, named)?;
        let groups = groups.into_iter().collect();
        Ok(Facts { persons, groups, rosters, named, further, ..Facts::default() })
    }

    async fn scan(
        &self,
        project: &Project,
        request: &ScanRequest,
        memory: &QuestionMemory,
    ) -> ApiResult<Vec<Partition>> {
        let started = Instant::now();
        let scan = self.events.scan_within(project.id, &project.group_types, request, memory).await;
        let scan = scan.map_err(unreadable)?;
        let took = &scan.stats;
        tracing::info!(
            project = project.id,
            millis = started.elapsed().as_millis() as u64,
            rows = took.rows,
            rows_touched = took.rows_touched,
            rows_decoded = took.rows_decoded,
            bytes_read = took.bytes_read,
            bytes_held = took.bytes_held,
            cache_hits = took.cache_hits,
            cache_misses = took.cache_misses,
            segments = took.segments,
            hot_rows = took.hot_rows,
            "events scanned"
        );
        request_metrics::record(|metrics| metrics.add_bytes_read(took.bytes_read));
        if let Some(measured) = &self.measured {
            measured.add(scan.stats);
        }
        Ok(scan.partitions)
    }

    /// The scans of sessions and behaviours.
    async fn further_scans(
        &self,
        project: &Project,
        needs: &Needs,
        memory: &QuestionMemory,
    ) -> ApiResult<Vec<Vec<Partition>>> {
        // Collected, because a closure that is held while waiting keeps the compiler from seeing that this can be sent.
        let scans = needs.further_scans().map(|scan| self.scan(project, scan, memory)).collect::<Vec<_>>();
        futures::stream::iter(scans).buffered(SCANS_AT_ONCE).try_collect().await
    }

    /// Properties of persons, by these keys, or all together as well.
    async fn persons(
        &self,
        project: &Project,
        keys: &BTreeSet<String>,
        whole: bool,
        memory: &QuestionMemory,
    ) -> ApiResult<Properties<Uuid>> {
        if keys.is_empty() && !whole {
            return Ok(Properties::default());
        }
        let (people, mut persons) = if whole {
            (self.events.whole_people(project.id, memory).await, Properties::whole(keys))
        } else {
            (self.events.people_within(project.id, keys, memory).await, Properties::new(keys))
        };
        let people = people.map_err(unreadable)?;
        let memory = memory.clone();
        let cancellation = CancellationToken::default();
        let _cancel_on_drop = cancellation.cancel_on_drop();
        let gathered = tokio::task::spawn_blocking(move || {
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
        gathered.await.map_err(|error| ApiError::internal(&error))?.map_err(unreadable)
    }

    /// The groups of one type. A type that the project does not have has none.
    async fn groups(
        &self,
        project: &Project,
        index: u8,
        keys: BTreeSet<String>,
        whole: bool,
    ) -> ApiResult<(u8, Properties<String>)> {
        let mut groups = if whole { Properties::whole(&keys) } else { Properties::new(&keys) };
        if let Some(name) = project.group_types.get(usize::from(index)) {
            let of = GroupType { index: u32::from(index), name: name.clone() };
            let found = if whole {
                self.events.whole_groups_of(project.id, &of).await
            } else {
                self.events.groups_of(project.id, &of, &keys).await
            };
            for group in found.map_err(unreadable)? {
                groups.add(group.key, &group.properties);
            }
        }
        Ok((index, groups))
    }

    /// The persons of distinct ids, merges applied.
    async fn named(&self, project: &Project, ids: &BTreeSet<String>) -> ApiResult<HashMap<String, Uuid>> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let finals = self.events.final_persons(project.id).await.map_err(unreadable)?;
        Ok(ids.iter().map(|id| (id.clone(), finals.of(derived(project.id, id)))).collect())
    }

    /// Who is on the lists of static cohorts, merges applied.
    async fn rosters(
        &self,
        project: &Project,
        cohorts: &BTreeSet<u64>,
        known: &BTreeMap<u64, Roster>,
    ) -> ApiResult<BTreeMap<u64, HashSet<Uuid>>> {
        let lists = cohorts.iter().filter_map(|id| Some((*id, known.get(id)?)));
        let lists = lists.map(|(id, roster)| async move {
            let listed = roster.members(&self.records, project.id, id).await.map_err(unreadable)?;
            Ok::<_, ApiError>((id, listed))
        });
        let lists = futures::future::try_join_all(lists).await?;
        if lists.is_empty() {
            return Ok(BTreeMap::new());
        }
        let finals = self.events.final_persons(project.id).await.map_err(unreadable)?;
        let resolved = tokio::task::spawn_blocking(move || {
            let of = |(id, listed): (u64, HashSet<Uuid>)| {
                (id, listed.into_iter().map(|one| finals.of(one)).collect())
            };
            lists.into_iter().map(of).collect()
        });
        resolved.await.map_err(|error| ApiError::internal(&error))
    }
}
