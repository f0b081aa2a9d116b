//! The actors behind a number of a result (persons, distinct ids or groups), in pages.
//!
//! A list is calculated in parts as the query that it belongs to is ([`super::parts`]).
//!
//! Must stay true: actors are matched by the same code that counts them; the pages together hold each actor once, as long
//! as no event arrives; memory grows with the offset and size of the page, not with the number of actors.

use pennon_analytics::ActorKind;
use pennon_analytics::kinds::DataPoint;
use pennon_analytics::people::MatchedActor;
use pennon_core::clock::timestamp;
use pennon_core::error::ApiResult;
use pennon_core::model::Project;
use pennon_eventstore::{GroupType, PersonDetails, derive_person_id, memory_in_use};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::execution::CancellationGuard;
use super::first_actors::{first_actors, merge_first_actors};
use super::parts::{Division, PlannedQuery, ResultKind};
use super::{Calculator, Concurrency, QueryDefinitions, QueryRequest, with_deadline};
use crate::errors::event_store_error;

/// A page of the actors behind a number.
#[derive(Debug, Default)]
pub struct ActorsPage {
    /// The number of actors on all pages.
    pub total: usize,
    /// The actors of this page.
    pub actors: Vec<ListedActor>,
}

/// An actor of a page.
#[derive(Debug)]
pub struct ListedActor {
    /// The actor as a JSON object.
    pub actor: ActorJson,
    /// By column of the result, whether the actor counts in it; for pages of appearances.
    pub appearances: Vec<bool>,
}

/// An actor as a JSON object of a response.
pub type ActorJson = Value;

impl Calculator {
    /// The actors behind the number that `point` names: `limit` of them after the first `offset`.
    pub async fn actors(
        &self,
        request: &QueryRequest<'_>,
        point: DataPoint,
        limit: usize,
        offset: usize,
    ) -> ApiResult<ActorsPage> {
        let QueryRequest { project, keyed, known, deadline, .. } = *request;
        let used = known.of(project.id, &super::direct_references(&keyed.query, Some(project)))?;
        let cancellation = CancellationGuard::until(deadline);
        let work = Box::pin(async {
            let at = (offset, limit);
            let attempt =
                |concurrency| self.try_actors(request, &used, &point, at, &cancellation, concurrency);
            match attempt(Concurrency::Shared).await {
                Err(error) if error == memory_in_use() => attempt(Concurrency::Exclusive).await,
                outcome => outcome,
            }
        });
        with_deadline(project, deadline, work).await
    }

    async fn try_actors(
        &self,
        request: &QueryRequest<'_>,
        used: &QueryDefinitions,
        point: &DataPoint,
        (offset, limit): (usize, usize),
        cancellation: &CancellationGuard,
        concurrency: Concurrency,
    ) -> ApiResult<ActorsPage> {
        let QueryRequest { project, keyed, now, .. } = *request;
        let (context, plan, permit) = self.plan(project, &keyed.query, used, now, concurrency).await?;
        let kind = keyed.query.counted_actors(point, &plan);
        // A plan over persons partitions by person, so the same group is in several partitions.
        let is_shared = kind != plan.actors(point);
        let kept = (!is_shared).then(|| offset.saturating_add(limit));
        let query = PlannedQuery {
            project,
            query: &keyed.query,
            source: keyed.source.as_ref(),
            plan: &plan,
            used,
            now,
            earliest: context.earliest_event,
            deadline: cancellation.deadline(),
        };
        let result_kind = ResultKind::Actors { point, kept };
        let mut first = match self.divide(query, result_kind, cancellation, (permit, concurrency)).await? {
            Division::Calculated { results, memory } => {
                let permit = self.acquire_shared_permit().await?;
                merge_first_actors(results, (kept, memory), cancellation, permit).await?
            }
            Division::Undivided { pinned, memory, permit } => {
                let inputs =
                    self.load_inputs(project, &plan, used, (pinned.map(|pinned| *pinned), memory)).await?;
                first_actors(plan.clone(), inputs, (point.clone(), kept), cancellation, permit).await?
            }
        };
        if is_shared {
            first = first.deduplicated();
        }
        let total = first.total;
        let page: Vec<MatchedActor> = first.actors.into_iter().skip(offset).take(limit).collect();
        let appearances: Vec<Vec<bool>> = page.iter().map(|one| one.appearances.clone()).collect();
        let actors = self.actors_json(project, kind, page).await?.into_iter().zip(appearances);
        let actors = actors.map(|(actor, appearances)| ListedActor { actor, appearances }).collect();
        Ok(ActorsPage { total, actors })
    }

    async fn actors_json(
        &self,
        project: &Project,
        kind: ActorKind,
        page: Vec<MatchedActor>,
    ) -> ApiResult<Vec<ActorJson>> {
        match kind {
            ActorKind::Persons => {
                let ids: Vec<Uuid> = page.iter().map(|one| one.actor).collect();
                let persons = self.events.persons(project.id, &ids).await.map_err(event_store_error)?;
                Ok(page.iter().zip(persons).map(|(one, known)| matched_person_json(known, one)).collect())
            }
            ActorKind::DistinctIds => {
                let finals = self.events.canonical_persons(project.id).await.map_err(event_store_error)?;
                let key = |one: &MatchedActor| one.key.clone().unwrap_or_default();
                let ids: Vec<Uuid> =
                    page.iter().map(|one| finals.of(derive_person_id(project.id, &key(one)))).collect();
                let persons = self.events.persons(project.id, &ids).await.map_err(event_store_error)?;
                let actors = page.iter().zip(persons).map(|(one, known)| {
                    matched_person_json(PersonDetails { distinct_ids: vec![key(one)], ..known }, one)
                });
                Ok(actors.collect())
            }
            ActorKind::Groups(index) => {
                let name = project.group_types.get(usize::from(index)).cloned().unwrap_or_default();
                let of = GroupType { index: u32::from(index), name };
                let keys = page.iter().map(|one| (of.clone(), one.key.clone().unwrap_or_default()));
                let keys: Vec<(GroupType, String)> = keys.collect();
                let known =
                    self.events.load_group_properties(project.id, &keys).await.map_err(event_store_error)?;
                let rows = page.iter().zip(keys.iter().zip(known));
                Ok(rows.map(|(one, ((_, key), known))| matched_group_json(index, key, known, one)).collect())
            }
        }
    }
}

fn matched_person_json(known: PersonDetails, matched: &MatchedActor) -> ActorJson {
    let mut person = person_json(known);
    person["matched_times"] = json!(matched_times(matched));
    person
}

/// A person as a JSON object of a response.
pub fn person_json(known: PersonDetails) -> ActorJson {
    json!({
        "type": "person",
        "id": known.id,
        "uuid": known.id,
        "name": name_of(&known),
        "distinct_ids": known.distinct_ids,
        "properties": known.properties,
        "created_at": known.created_at.and_then(chrono::DateTime::from_timestamp_micros).map(timestamp),
        "is_identified": known.is_identified,
    })
}

fn matched_group_json(
    index: u8,
    key: &str,
    properties: Map<String, Value>,
    matched: &MatchedActor,
) -> ActorJson {
    json!({
        "type": "group",
        "id": key,
        "group_type_index": index,
        "group_key": key,
        "properties": properties,
        "created_at": null,
        "matched_times": matched_times(matched),
    })
}

fn matched_times(matched: &MatchedActor) -> Vec<String> {
    let instants = matched.times.iter().filter_map(|time| chrono::DateTime::from_timestamp_micros(*time));
    instants.map(timestamp).collect()
}

/// The display name of a person: its first non-empty name property, else a distinct id.
fn name_of(person: &PersonDetails) -> Option<&str> {
    const NAME_PROPERTIES: [&str; 7] = ["email", "Email", "name", "Name", "username", "Username", "UserName"];
    let named = NAME_PROPERTIES.iter().filter_map(|key| person.properties.get(*key)?.as_str());
    named.chain(person.distinct_ids.first().map(String::as_str)).find(|name| !name.is_empty())
}
