//! The data about the person and the groups of a request: properties in the request override stored ones.
//!
//! Must stay true: stored properties, cohort lists and overrides are read only when a selected flag needs data that the
//! request does not contain, all of them in parallel; what cannot be read is marked as unavailable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use pennon_eventstore::cohort_lists::cohorts_with;
use pennon_eventstore::continuity::Overrides;
use pennon_eventstore::{EventStoreError, GroupType, WaitingBlocks, derive_person_id};
use pennon_filters::body::json::Object;
use pennon_flag_rules::evaluate::{
    CompiledFlag, DISTINCT_ID, DataLookups, Evaluation, EvaluationPlan, GroupSubject, SlowSearches, Subject,
    Unavailable,
};
use serde_json::Value;
use uuid::Uuid;

use super::project::CompiledProject;
use super::request::EvaluationRequest;
use crate::Flags;

/// Most groups of a request whose stored properties are loaded.
const LOADED_GROUPS_MAX: usize = 5;

/// The data about the person and the groups of a request.
#[derive(Debug, Default)]
pub struct SubjectData {
    person: Object,
    /// Keys and properties of the groups in the request, by group type index.
    groups: BTreeMap<u32, (String, Object)>,
    static_cohorts: BTreeSet<i64>,
    overrides: BTreeMap<i64, String>,
    unavailable: Unavailable,
}

impl SubjectData {
    /// The data in the request itself.
    pub fn of(project: &CompiledProject, request: &EvaluationRequest) -> Self {
        let group = |(index, name): (u32, &String)| {
            let key = request.groups.get(name)?.clone();
            Some((index, (key, request.group_properties.get(name).cloned().unwrap_or_default())))
        };
        let groups = project.group_types().filter_map(group).collect();
        Self { person: merge_properties(Object::new(), request), groups, ..Self::default() }
    }

    /// The evaluation subject with this data.
    fn subject<'a>(&'a self, request: &'a EvaluationRequest, now: DateTime<Utc>) -> Subject<'a> {
        let group = |(index, (key, properties)): (&u32, &'a (String, Object))| {
            (*index, GroupSubject { key: key.as_str(), properties })
        };
        Subject {
            device_id: request.device_id.as_deref(),
            anonymous_id: request.anonymous_id.as_deref(),
            overrides: Some(&self.overrides),
            unavailable: self.unavailable,
            ..Subject::person(&request.distinct_id, &self.person, &self.static_cohorts, now)
        }
        .with_groups(self.groups.iter().map(group).collect())
    }

    /// The data that must be loaded for the flags of `plan`.
    pub fn lookups(
        &self,
        plan: &EvaluationPlan<'_>,
        request: &EvaluationRequest,
        now: DateTime<Utc>,
    ) -> DataLookups {
        plan.lookups(&self.subject(request, now))
    }

    /// The evaluations of the flags of `plan`, sorted by key.
    pub fn evaluate<'a>(
        &self,
        plan: &EvaluationPlan<'a>,
        request: &EvaluationRequest,
        now: DateTime<Utc>,
        slow_searches: SlowSearches<'_>,
    ) -> Vec<(&'a CompiledFlag, Evaluation)> {
        plan.evaluate_all(&Subject { slow_searches, ..self.subject(request, now) })
    }
}

/// The person properties: stored ones, overridden by the distinct id and the properties in the request.
fn merge_properties(stored: Object, request: &EvaluationRequest) -> Object {
    let mut properties = stored;
    properties.insert(DISTINCT_ID.to_owned(), Value::from(request.distinct_id.as_str()));
    apply_sent(&mut properties, &request.person_properties);
    properties
}

fn apply_sent(properties: &mut Object, sent: &Object) {
    properties.extend(sent.iter().map(|(name, value)| (name.clone(), value.clone())));
}

/// Whether the request stores an override: it has the id from before a login, and some flags have experience
/// continuity.
pub fn stores_override(project: &CompiledProject, request: &EvaluationRequest) -> bool {
    let has_other_id = request.anonymous_id.as_ref().is_some_and(|id| *id != request.distinct_id);
    has_other_id && !project.continuous_flags.is_empty()
}

/// Adds the stored data.
pub async fn load_stored_data(
    flags: &Flags,
    project: &Arc<CompiledProject>,
    request: &EvaluationRequest,
    lookups: &DataLookups,
    mut subject_data: SubjectData,
    waiting_blocks: Option<WaitingBlocks>,
    now: DateTime<Utc>,
) -> SubjectData {
    let wants_overrides = lookups.overrides || stores_override(project, request);
    if lookups.is_empty() && !wants_overrides {
        return subject_data;
    }
    let (id, distinct_id) = (project.settings.id, request.distinct_id.as_str());
    let groups = groups_to_load(project, &subject_data, lookups);
    let reader = PersonReader { flags, project, lookups, wants_overrides };
    let prefetched = async {
        let cached_person_ids = flags.events.cached_person_ids(id, distinct_id).await?;
        Ok::<_, EventStoreError>((reader.read(&cached_person_ids).await, cached_person_ids))
    };
    let subject = flags.events.subject_parts(id, distinct_id, lookups.person, &groups, waiting_blocks);
    let (subject, prefetched) = tokio::join!(subject, prefetched);
    let (subject, prefetched) = match (subject, prefetched) {
        (Ok(subject), Ok(prefetched)) => (subject, prefetched),
        (Err(error), _) | (_, Err(error)) => {
            tracing::warn!(cause = %error, "the stored person of an evaluation could not be read");
            subject_data.unavailable =
                Unavailable { person: true, groups: true, static_cohorts: true, overrides: wants_overrides };
            return subject_data;
        }
    };
    subject_data.person = merge_properties(subject.person.properties, request);
    for ((of, _), stored) in groups.iter().zip(subject.groups) {
        if let Some((_, properties)) = subject_data.groups.get_mut(&of.index) {
            let sent = std::mem::replace(properties, stored);
            apply_sent(properties, &sent);
        }
    }
    let (mut records_by_id, cached_person_ids) = prefetched;
    let ids = subject.person.ids;
    let other_ids: BTreeSet<Uuid> = ids.difference(&cached_person_ids).copied().collect();
    if !other_ids.is_empty() {
        // The person was merged a moment ago, or this process has not loaded the project's persons yet.
        records_by_id = records_by_id.merge(reader.read(&other_ids).await);
    }
    match records_by_id.static_cohorts {
        Ok(cohorts) => subject_data.static_cohorts = cohorts,
        Err(error) => {
            tracing::warn!(cause = %error, "the static cohorts of an evaluation could not be read");
            subject_data.unavailable.static_cohorts = true;
        }
    }
    if wants_overrides {
        match load_overrides(flags, project, request, records_by_id.overrides, now).await {
            Ok(overrides) => subject_data.overrides = overrides,
            Err(error) => {
                tracing::warn!(cause = %error, "the overrides of an evaluation could not be read or stored");
                subject_data.unavailable.overrides = true;
            }
        }
    }
    subject_data
}

/// The groups in the request that need stored properties.
fn groups_to_load(
    project: &CompiledProject,
    subject_data: &SubjectData,
    lookups: &DataLookups,
) -> Vec<(GroupType, String)> {
    let named = project.group_types().filter_map(|(index, name)| {
        let (key, _) = subject_data.groups.get(&index)?;
        Some((GroupType { index, name: name.clone() }, key.clone()))
    });
    named.take(LOADED_GROUPS_MAX).filter(|(of, _)| lookups.groups.contains(&of.index)).collect()
}

/// Reads the records stored under the ids of a person.
struct PersonReader<'a> {
    flags: &'a Flags,
    project: &'a CompiledProject,
    lookups: &'a DataLookups,
    wants_overrides: bool,
}

/// The records stored under the ids of a person.
struct PersonRecords {
    static_cohorts: Result<BTreeSet<i64>, EventStoreError>,
    overrides: Result<Overrides, EventStoreError>,
}

impl PersonRecords {
    fn merge(self, other: PersonRecords) -> PersonRecords {
        let static_cohorts = self.static_cohorts.and_then(|mut cohorts| {
            cohorts.extend(other.static_cohorts?);
            Ok(cohorts)
        });
        let overrides = self.overrides.and_then(|overrides| Ok(overrides.and(other.overrides?)));
        PersonRecords { static_cohorts, overrides }
    }
}

impl PersonReader<'_> {
    async fn read(&self, ids: &BTreeSet<Uuid>) -> PersonRecords {
        let (records, id) = (&self.flags.app.store.records, self.project.settings.id);
        let cohort_lists = self.project.cohorts.cohort_lists_for(&self.lookups.static_cohorts);
        let overrides = async {
            match self.wants_overrides {
                true => Ok(Overrides::read(records, id, ids).await?),
                false => Ok(Overrides::default()),
            }
        };
        let (static_cohorts, overrides) =
            tokio::join!(cohorts_with(records, id, &cohort_lists, ids), overrides);
        PersonRecords { static_cohorts, overrides }
    }
}

/// The overrides of the person, including the one that this request stores.
async fn load_overrides(
    flags: &Flags,
    project: &CompiledProject,
    request: &EvaluationRequest,
    loaded: Result<Overrides, EventStoreError>,
    now: DateTime<Utc>,
) -> Result<BTreeMap<i64, String>, EventStoreError> {
    let (records, id, now) = (&flags.app.store.records, project.settings.id, now.timestamp_micros());
    let loaded = loaded?;
    if let Err(error) = loaded.extend_life(records, now).await {
        tracing::warn!(cause = %error, "the time to live of an override could not be extended");
    }
    match request.anonymous_id.as_deref().filter(|_| stores_override(project, request)) {
        Some(anonymous) => {
            let own = derive_person_id(id, &request.distinct_id);
            Ok(loaded.store(records, id, own, (&project.continuous_flags, anonymous), now).await?)
        }
        None => Ok(loaded.by_flag()?),
    }
}
