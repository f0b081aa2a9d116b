//! What is known of the person of a request: what the request says, over what is stored.
//!
//! Must stay true: stored properties, lists and overrides are read only where a flag of the answer needs what the request
//! does not say, all of them beside each other; what cannot be read is marked as unavailable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use pennon_engine::flag::evaluate::{
    CompiledFlag, DISTINCT_ID, Evaluation, GroupSubject, Lookups, Plan, SlowSearches, Subject, Unavailable,
};
use pennon_engine::flag::json::Object;
use pennon_eventstore::continuity::Overrides;
use pennon_eventstore::members::cohorts_with;
use pennon_eventstore::{EventStoreError, GroupType, Hot, derived};
use serde_json::Value;
use uuid::Uuid;

use super::project::CompiledProject;
use super::request::EvaluationRequest;
use crate::Flags;

/// Most groups of a request whose stored properties are looked up.
const GROUPS_LOOKED_UP_MAX: usize = 5;

/// What is known of the person of a request.
#[derive(Debug, Default)]
pub struct SubjectFacts {
    person: Object,
    /// Keys and properties of the named groups, by index of their type.
    groups: BTreeMap<u32, (String, Object)>,
    static_cohorts: BTreeSet<i64>,
    overrides: BTreeMap<i64, String>,
    unavailable: Unavailable,
}

impl SubjectFacts {
    /// What the request itself says.
    pub fn of(project: &CompiledProject, request: &EvaluationRequest) -> Self {
        let group = |(index, name): (u32, &String)| {
            let key = request.groups.get(name)?.clone();
            Some((index, (key, request.group_properties.get(name).cloned().unwrap_or_default())))
        };
        let groups = project.group_types().filter_map(group).collect();
        Self { person: merged(Object::new(), request), groups, ..Self::default() }
    }

    /// The subject that they describe.
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

    /// What has to be looked up for the flags of `plan`.
    pub fn lookups(&self, plan: &Plan<'_>, request: &EvaluationRequest, now: DateTime<Utc>) -> Lookups {
        plan.lookups(&self.subject(request, now))
    }

    /// The evaluations of the flags of `plan`, in the order of their keys.
    pub fn evaluate<'a>(
        &self,
        plan: &Plan<'a>,
        request: &EvaluationRequest,
        now: DateTime<Utc>,
        slow_searches: SlowSearches<'_>,
    ) -> Vec<(&'a CompiledFlag, Evaluation)> {
        plan.evaluate_all(&Subject { slow_searches, ..self.subject(request, now) })
    }
}

/// The properties of a person: the stored ones, the id of the request, and those that the request has.
fn merged(stored: Object, request: &EvaluationRequest) -> Object {
    let mut properties = stored;
    properties.insert(DISTINCT_ID.to_owned(), Value::from(request.distinct_id.as_str()));
    over(&mut properties, &request.person_properties);
    properties
}

fn over(properties: &mut Object, sent: &Object) {
    properties.extend(sent.iter().map(|(name, value)| (name.clone(), value.clone())));
}

/// Whether the request stores an override: it names the id before a login, and some flags follow a person through one.
pub fn stores_override(project: &CompiledProject, request: &EvaluationRequest) -> bool {
    let other = request.anonymous_id.as_ref().is_some_and(|id| *id != request.distinct_id);
    other && !project.continuous_flags.is_empty()
}

/// Adds to the facts what is stored.
pub async fn look_up(
    flags: &Flags,
    project: &Arc<CompiledProject>,
    request: &EvaluationRequest,
    lookups: &Lookups,
    mut facts: SubjectFacts,
    hot: Option<Hot>,
    now: DateTime<Utc>,
) -> SubjectFacts {
    let wants_overrides = lookups.overrides || stores_override(project, request);
    if lookups.is_empty() && !wants_overrides {
        return facts;
    }
    let (id, distinct_id) = (project.settings.id, request.distinct_id.as_str());
    let groups = groups_to_look_up(project, &facts, lookups);
    let reader = PersonReader { flags, project, lookups, wants_overrides };
    let beside = async {
        let likely = flags.events.likely_ids(id, distinct_id).await?;
        Ok::<_, EventStoreError>((reader.read(&likely).await, likely))
    };
    let subject = flags.events.subject_parts(id, distinct_id, lookups.person, &groups, hot);
    let (subject, beside) = tokio::join!(subject, beside);
    let (subject, beside) = match (subject, beside) {
        (Ok(subject), Ok(beside)) => (subject, beside),
        (Err(error), _) | (_, Err(error)) => {
            tracing::warn!(cause = %error, "the person of an evaluation could not be read");
            facts.unavailable =
                Unavailable { person: true, groups: true, static_cohorts: true, overrides: wants_overrides };
            return facts;
        }
    };
    facts.person = merged(subject.person.properties, request);
    for ((of, _), stored) in groups.iter().zip(subject.groups) {
        if let Some((_, properties)) = facts.groups.get_mut(&of.index) {
            let sent = std::mem::replace(properties, stored);
            over(properties, &sent);
        }
    }
    let (mut found, likely) = beside;
    let ids = subject.person.ids;
    let others: BTreeSet<Uuid> = ids.difference(&likely).copied().collect();
    if !others.is_empty() {
        // Somebody was merged into this person a moment ago, or this process has not met the project's persons yet.
        found = found.and(reader.read(&others).await);
    }
    match found.static_cohorts {
        Ok(cohorts) => facts.static_cohorts = cohorts,
        Err(error) => {
            tracing::warn!(cause = %error, "the static cohorts of an evaluation could not be read");
            facts.unavailable.static_cohorts = true;
        }
    }
    if wants_overrides {
        match overrides(flags, project, request, found.overrides, now).await {
            Ok(overrides) => facts.overrides = overrides,
            Err(error) => {
                tracing::warn!(cause = %error, "the overrides of an evaluation could not be read or stored");
                facts.unavailable.overrides = true;
            }
        }
    }
    facts
}

/// The named groups of which something is needed that the request does not say.
fn groups_to_look_up(
    project: &CompiledProject,
    facts: &SubjectFacts,
    lookups: &Lookups,
) -> Vec<(GroupType, String)> {
    let named = project.group_types().filter_map(|(index, name)| {
        let (key, _) = facts.groups.get(&index)?;
        Some((GroupType { index, name: name.clone() }, key.clone()))
    });
    named.take(GROUPS_LOOKED_UP_MAX).filter(|(of, _)| lookups.groups.contains(&of.index)).collect()
}

/// Reads what lies by the ids of a person.
struct PersonReader<'a> {
    flags: &'a Flags,
    project: &'a CompiledProject,
    lookups: &'a Lookups,
    wants_overrides: bool,
}

/// What lies by the ids of a person.
struct PersonRecords {
    static_cohorts: Result<BTreeSet<i64>, EventStoreError>,
    overrides: Result<Overrides, EventStoreError>,
}

impl PersonRecords {
    fn and(self, more: PersonRecords) -> PersonRecords {
        let static_cohorts = self.static_cohorts.and_then(|mut cohorts| {
            cohorts.extend(more.static_cohorts?);
            Ok(cohorts)
        });
        let overrides = self.overrides.and_then(|overrides| Ok(overrides.and(more.overrides?)));
        PersonRecords { static_cohorts, overrides }
    }
}

impl PersonReader<'_> {
    async fn read(&self, ids: &BTreeSet<Uuid>) -> PersonRecords {
        let (records, id) = (&self.flags.app.store.records, self.project.settings.id);
        let rosters = self.project.cohorts.rosters_of(&self.lookups.static_cohorts);
        let overrides = async {
            match self.wants_overrides {
                true => Ok(Overrides::read(records, id, ids).await?),
                false => Ok(Overrides::default()),
            }
        };
        let (static_cohorts, overrides) = tokio::join!(cohorts_with(records, id, &rosters, ids), overrides);
        PersonRecords { static_cohorts, overrides }
    }
}

/// The overrides of the person, the one of this request included where it stores one.
async fn overrides(
    flags: &Flags,
    project: &CompiledProject,
    request: &EvaluationRequest,
    read: Result<Overrides, EventStoreError>,
    now: DateTime<Utc>,
) -> Result<BTreeMap<i64, String>, EventStoreError> {
    let (records, id, now) = (&flags.app.store.records, project.settings.id, now.timestamp_micros());
    let read = read?;
    if let Err(error) = read.extend_life(records, now).await {
        tracing::warn!(cause = %error, "the life of an override could not be extended");
    }
    match request.anonymous_id.as_deref().filter(|_| stores_override(project, request)) {
        Some(anonymous) => {
            let own = derived(id, &request.distinct_id);
            Ok(read.store(records, id, own, (&project.continuous_flags, anonymous), now).await?)
        }
        None => Ok(read.by_flag()?),
    }
}
